// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/mxint4_rules.hpp"
#include "backends/foreign/pack_int4.hpp"
#include "backends/foreign/rule_backend.hpp"
#include "backends/foreign/undo_integers.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};

constexpr Rules rules = [] {
  Rules all = mxint4::rules_for(Loader::vllm, capabilities,
                                {TokenExchange::none, TokenExchange::allgather});
  all.declared_biases = false;
  all.routings = {Routing::renormalize, Routing::deepseek_v3, Routing::llama4};
  all.f32_logits = {Routing::deepseek_v3};
  all.router = mxint4::router;
  return all;
}();

}  // namespace
}  // namespace foreign

const Backend trtllm_mxint4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_trtllm_mxint4",
    .summary = "TensorRT-LLM int4 of FlashInfer, groups of 32",
    .layout = "trtllm_mxint4, swizzle_128x4",
    .only_forced = "VLLM_USE_FLASHINFER_MOE_INT4=1 (default 0)",
    .preparation = {foreign::plan_mxint4_experts, foreign::pack_mxint4_expert,
                    foreign::check_mxint4, foreign::undo_mxint4},
});

}  // namespace fewbit
