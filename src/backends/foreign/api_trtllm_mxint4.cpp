// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_int4.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100, family_120};
constexpr WeightRule weights[] = {
    {{WeightKind::int4, WeightKind::int4_g32}, {ActivationKind::none}}};
constexpr std::int64_t groups[] = {32};
constexpr FunctionRule functions[] = {{Activation::silu}, {Activation::swigluoai}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 256}, {Divisor::Size::intermediate, 256}};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .integer_groups = groups,
    .zero_points = false,
    .group_order = false,
    .functions = functions,
    .non_gated = false,
    .biases = {},
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .router = {.most_top_k = 32,
               .experts_multiple = 4,
               .more_experts_than_top_k = true,
               .most_top_groups = 4},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend api_trtllm_mxint4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::flashinfer,
    .name = "trtllm_mxint4",
    .summary = "TensorRT-LLM int4 in groups of 32, called directly",
    .layout = "trtllm_mxint4",
    .preparation = {foreign::plan_mxint4_experts, foreign::pack_mxint4_expert,
                    foreign::check_mxint4},
});

}  // namespace fewbit
