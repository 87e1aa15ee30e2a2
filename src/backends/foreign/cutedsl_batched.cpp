// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr WeightRule weights[] = {{{WeightKind::nvfp4}, {ActivationKind::nvfp4}}};
constexpr FunctionRule functions[] = {{Activation::silu, false}};
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 16},
    {Divisor::Size::intermediate, 64, Set<WeightKind>::all(), GroupUse::ignored, When::gated},
    {Divisor::Size::intermediate, 16, Set<WeightKind>::all(), GroupUse::ignored, When::non_gated},
};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .biases = {},
    .dtypes = bf16_only,
    .exchanges = batched_exchanges,
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend cutedsl_batched_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_cutedsl_batched",
    .summary = "CuTe DSL NVFP4 of FlashInfer, tokens batched by expert",
    .layout = "swizzle_128x4",
});

}  // namespace fewbit
