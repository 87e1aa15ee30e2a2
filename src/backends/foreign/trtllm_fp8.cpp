// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr WeightRule weights[] = {
    {{WeightKind::fp8_block}, {ActivationKind::fp8_group}},
    {{WeightKind::mxfp8}, {ActivationKind::mxfp8}},
    {{WeightKind::fp8_tensor}, {ActivationKind::fp8_tensor}},
};
constexpr FunctionRule functions[] = {
    {Activation::silu}, {Activation::swigluoai}, {Activation::relu2}};
constexpr Divisor shapes[] = {{Divisor::Size::intermediate, 128, {WeightKind::fp8_block}}};

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

const Backend trtllm_fp8_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_trtllm_fp8",
    .summary = "TensorRT-LLM FP8 of FlashInfer",
});

}  // namespace fewbit
