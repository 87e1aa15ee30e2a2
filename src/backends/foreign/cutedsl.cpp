// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr WeightRule weights[] = {{{WeightKind::nvfp4}, {ActivationKind::nvfp4}}};
constexpr FunctionRule functions[] = {
    {Activation::silu}, {Activation::swigluoai}, {Activation::relu2}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 16}, {Divisor::Size::intermediate, 16}};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .biases = {},
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .exchanges = ordered_exchanges,
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend cutedsl_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_cutedsl",
    .summary = "CuTe DSL NVFP4 of FlashInfer, W4A4",
    .layout = "swizzle_128x4",
});

}  // namespace fewbit
