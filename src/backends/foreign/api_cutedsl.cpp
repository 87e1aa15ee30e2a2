// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{100, 100}, {103, 103}, {107, 107}};
constexpr WeightRule weights[] = {{{WeightKind::nvfp4}, {ActivationKind::nvfp4}}};
constexpr FunctionRule functions[] = {{Activation::silu}, {Activation::swigluoai}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 16}, {Divisor::Size::intermediate, 64}};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .biases = {},
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend api_cutedsl_backend = foreign::backend<foreign::rules>({
    .engine = Engine::flashinfer,
    .name = "cutedsl_nvfp4",
    .summary = "CuTe DSL NVFP4, called directly",
    .layout = "swizzle_128x4",
});

}  // namespace fewbit
