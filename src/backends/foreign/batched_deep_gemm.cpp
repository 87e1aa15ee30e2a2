// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{90, 90}, family_100};
constexpr WeightRule weights[] = {{{WeightKind::fp8_block}, {ActivationKind::fp8_group}}};
constexpr FunctionRule functions[] = {{Activation::silu}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 128}, {Divisor::Size::intermediate, 128}};

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

const Backend batched_deep_gemm_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_batched_deep_gemm",
    .summary = "DeepGEMM, FP8 blocks, tokens batched by expert",
});

}  // namespace fewbit
