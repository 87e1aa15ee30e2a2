// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{90, 109}};
constexpr WeightRule weights[] = {{{WeightKind::mxfp4}, {ActivationKind::none}}};
// swigluoai fused; the rest by the form that computes the function apart.
constexpr FunctionRule functions[] = {
    {Activation::swigluoai}, {Activation::silu}, {Activation::gelu}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 32}, {Divisor::Size::intermediate, 32}};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .dtypes = both_16_bit,
    .exchanges = ordered_exchanges,
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend oai_triton_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_oai_triton",
    .summary = "Triton kernels of gpt-oss, MXFP4",
});

}  // namespace fewbit
