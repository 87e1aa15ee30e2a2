// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_swizzled.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{90, 90}, family_100, family_120};
constexpr WeightRule weights[] = {
    {{WeightKind::plain}, {ActivationKind::none}},
    {{WeightKind::fp8_tensor}, {ActivationKind::fp8_tensor}},
    {{WeightKind::mxfp4}, {ActivationKind::none}, {90, 90}},
    {{WeightKind::fp8_block}, {ActivationKind::fp8_group}, {90, 90}},
    {{WeightKind::mxfp4}, {ActivationKind::mxfp8}, {100}},
    {{WeightKind::nvfp4}, {ActivationKind::nvfp4}, {100}},
};
constexpr FunctionRule functions[] = {
    {Activation::silu}, {Activation::gelu_tanh}, {Activation::relu2}, {Activation::swigluoai}};
// A gated NVFP4 layer needs whole blocks of 128 rows in gate and up together.
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 16, {WeightKind::nvfp4}},
    {Divisor::Size::intermediate, 64, {WeightKind::nvfp4}, GroupUse::ignored, When::gated},
    {Divisor::Size::intermediate, 16, {WeightKind::nvfp4}, GroupUse::ignored, When::non_gated},
    {Divisor::Size::hidden, 32, {WeightKind::mxfp4}},
    {Divisor::Size::intermediate, 32, {WeightKind::mxfp4}},
    {Divisor::Size::intermediate, 128, {WeightKind::fp8_block}},
};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .biases = {WeightKind::mxfp4},
    .dtypes = both_16_bit,
    .experts = ExpertSpread::contiguous,
    .exchanges = ordered_exchanges,
    .shapes = shapes,
};

constexpr SwizzledForm form{.kinds = {WeightKind::plain, WeightKind::nvfp4, WeightKind::mxfp4},
                            .expected = "16 bits, NVFP4 or MXFP4",
                            .undescribed = {WeightKind::fp8_tensor, WeightKind::fp8_block},
                            .mx_activations = {ActivationKind::mxfp8}};

}  // namespace
}  // namespace foreign

const Backend flashinfer_cutlass_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_cutlass",
    .summary = "CUTLASS grouped products of FlashInfer",
    .layout = "row_major, swizzle_128x4",
    .preparation = foreign::swizzled_preparation<foreign::form>,
});

}  // namespace fewbit
