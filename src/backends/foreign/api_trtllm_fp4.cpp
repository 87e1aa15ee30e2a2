// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_trtllm_fp4.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{100, 100}, {103, 103}, {107, 107}};
constexpr WeightRule weights[] = {
    {{WeightKind::nvfp4}, {ActivationKind::nvfp4}},
    {{WeightKind::mxfp4}, {ActivationKind::mxfp8}},
    {{WeightKind::mxfp4}, {ActivationKind::none}, {100, 100}},
    {{WeightKind::mxfp4}, {ActivationKind::none}, {107, 107}},
};
constexpr FunctionRule functions[] = {{Activation::silu}, {Activation::swigluoai}};
// Rows of gate and up fill blocks of 128, columns of scales blocks of 4.
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 128},
    {Divisor::Size::intermediate, 64},
    {Divisor::Size::intermediate, 128, {WeightKind::mxfp4}},
};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .router = {.most_top_k = 32,
               .experts_multiple = 4,
               .more_experts_than_top_k = true,
               .llama4_top_1 = true,
               .most_top_groups = 4},
    .shapes = shapes,
};

// Called directly, the kernels are given sizes that they can take.
constexpr TrtllmFp4Form form{.kinds = {WeightKind::nvfp4, WeightKind::mxfp4},
                             .expected = "NVFP4 or MXFP4"};

}  // namespace
}  // namespace foreign

const Backend api_trtllm_fp4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::flashinfer,
    .name = "trtllm_fp4",
    .summary = "TensorRT-LLM NVFP4 and MXFP4, called directly",
    .layout = "trtllm_rows, trtllm_rows_128x4, row_major",
    .preparation = foreign::trtllm_fp4_preparation<foreign::form>,
});

}  // namespace fewbit
