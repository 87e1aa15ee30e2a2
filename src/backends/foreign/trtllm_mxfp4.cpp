// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_trtllm_fp4.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr WeightRule weights[] = {
    {{WeightKind::mxfp4}, {ActivationKind::none, ActivationKind::mxfp8}}};
constexpr FunctionRule functions[] = {{Activation::swigluoai}, {Activation::silu}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 32}, {Divisor::Size::intermediate, 32}};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .exchanges = ordered_exchanges,
    .shapes = shapes,
};

constexpr TrtllmFp4Form form{.kinds = {WeightKind::mxfp4},
                             .expected = "MXFP4",
                             .hidden = 256,
                             .intermediate = 128,
                             .ungated_intermediate = 128};

}  // namespace
}  // namespace foreign

const Backend trtllm_mxfp4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_trtllm_mxfp4",
    .summary = "TensorRT-LLM MXFP4 of FlashInfer",
    .layout = "trtllm_rows, trtllm_rows_128x4, row_major",
    .preparation = foreign::trtllm_fp4_preparation<foreign::form>,
});

}  // namespace fewbit
