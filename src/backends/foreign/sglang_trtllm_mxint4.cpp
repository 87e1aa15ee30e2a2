// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/mxint4_rules.hpp"
#include "backends/foreign/pack_int4.hpp"
#include "backends/foreign/rule_backend.hpp"
#include "backends/foreign/undo_integers.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{100}};

constexpr Rules rules = mxint4::rules_for(Loader::sglang, capabilities, {TokenExchange::none});

}  // namespace
}  // namespace foreign

const Backend sglang_trtllm_mxint4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::sglang,
    .name = "sglang_trtllm_mxint4",
    .summary = "TensorRT-LLM int4 of FlashInfer in SGLang, groups of 32",
    .layout = "trtllm_mxint4, swizzle_128x4",
    .only_forced = "--moe-runner-backend flashinfer_trtllm",
    .preparation = {foreign::plan_mxint4_experts, foreign::pack_mxint4_expert,
                    foreign::check_mxint4, foreign::undo_mxint4},
});

}  // namespace fewbit
