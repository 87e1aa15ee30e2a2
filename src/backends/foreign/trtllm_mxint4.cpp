// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_int4.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr WeightRule weights[] = {{{WeightKind::int4_g32}, {ActivationKind::none}}};
// swigluoai is listed by vLLM, but its parameters do not reach the kernel.
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
    .exchanges = {TokenExchange::none, TokenExchange::allgather},
    .routings = {Routing::renormalize, Routing::deepseek_v3, Routing::llama4},
    .f32_logits = {Routing::deepseek_v3},
    .router = {.most_top_k = 32,
               .experts_multiple = 4,
               .more_experts_than_top_k = true,
               .most_top_groups = 4},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend trtllm_mxint4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_trtllm_mxint4",
    .summary = "TensorRT-LLM int4 of FlashInfer, groups of 32",
    .layout = "trtllm_mxint4",
    .only_forced = "VLLM_USE_FLASHINFER_MOE_INT4=1 (default 0)",
    .preparation = {foreign::plan_mxint4_experts, foreign::pack_mxint4_expert,
                    foreign::check_mxint4},
});

}  // namespace fewbit
