// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/b12x_preparation.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{120, 121}};
constexpr WeightRule weights[] = {
    {{WeightKind::nvfp4}, {ActivationKind::nvfp4, ActivationKind::none}},
    {{WeightKind::mxfp4}, {ActivationKind::none, ActivationKind::mxfp4}},
};
constexpr FunctionRule functions[] = {
    {Activation::silu}, {Activation::gelu_tanh}, {Activation::swigluoai}, {Activation::relu2}};
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 64},
    {Divisor::Size::intermediate, 64},
};

constexpr Rules rules{
    .capabilities = capabilities,
    .cuda_version = 130,
    .weights = weights,
    .functions = functions,
    .biases = {},
    .dtypes = bf16_only,
    .experts = ExpertSpread::one_rank,
    .shapes = shapes,
};

// Called directly, the kernels are given sizes that they can take.
constexpr PackedFp4Form packed{.kinds = {WeightKind::nvfp4, WeightKind::mxfp4},
                               .expected = "NVFP4 or MXFP4"};

}  // namespace
}  // namespace foreign

const Backend api_b12x_backend = foreign::backend<foreign::rules>({
    .engine = Engine::flashinfer,
    .name = "b12x",
    .summary = "b12x NVFP4 and MXFP4, called directly; CUDA 13 or newer",
    .layout = "marlin_4bit, byte_scale_grid, row_major, swizzle_128x4",
    .preparation = foreign::b12x::preparation<foreign::packed>,
});

}  // namespace fewbit
