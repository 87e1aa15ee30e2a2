// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_int4.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{100}};
constexpr WeightRule weights[] = {{{WeightKind::int4_g32}, {ActivationKind::none}}};
constexpr FunctionRule functions[] = {{Activation::silu, false}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 256}, {Divisor::Size::intermediate, 256}};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .zero_points = false,
    .group_order = false,
    .functions = functions,
    .non_gated = false,
    .biases = {},
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .exchanges = {TokenExchange::none},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend sglang_trtllm_mxint4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::sglang,
    .name = "sglang_trtllm_mxint4",
    .summary = "TensorRT-LLM int4 of FlashInfer in SGLang, groups of 32",
    .layout = "trtllm_mxint4",
    .only_forced = "--moe-runner-backend flashinfer_trtllm",
    .preparation = {foreign::plan_mxint4_experts, foreign::pack_mxint4_expert,
                    foreign::check_mxint4},
});

}  // namespace fewbit
