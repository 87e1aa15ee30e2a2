// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_swizzled.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{89, 90},   {100, 100}, {103, 103},
                                       {107, 107}, {110, 110}, {120, 121}};
constexpr WeightRule weights[] = {
    {{WeightKind::plain}, {ActivationKind::none}},
    {{WeightKind::mxfp4}, {ActivationKind::none}, {90, 90}},
};
constexpr FunctionRule functions[] = {{Activation::silu}, {Activation::swigluoai}};
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 128, {WeightKind::mxfp4}},
    {Divisor::Size::intermediate, 128, {WeightKind::mxfp4}},
};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .biases = {WeightKind::mxfp4},
    .dtypes = both_16_bit,
    .experts = ExpertSpread::contiguous,
    .shapes = shapes,
};

constexpr SwizzledForm form{
    .kinds = {WeightKind::plain}, .expected = "16 bits", .undescribed = {WeightKind::mxfp4}};

}  // namespace
}  // namespace foreign

const Backend api_cutlass_backend = foreign::backend<foreign::rules>({
    .engine = Engine::flashinfer,
    .name = "cutlass",
    .summary = "CUTLASS grouped products, called directly",
    .layout = "row_major",
    .preparation = foreign::swizzled_preparation<foreign::form>,
});

}  // namespace fewbit
