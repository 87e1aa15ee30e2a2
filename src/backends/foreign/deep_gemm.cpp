// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{90, 90}, family_100};
constexpr WeightRule weights[] = {
    {{WeightKind::fp8_block}, {ActivationKind::fp8_group}},
    {{WeightKind::mxfp8}, {ActivationKind::mxfp8}, family_100},
};
constexpr FunctionRule functions[] = {{Activation::silu}, {Activation::swigluoai}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 128}, {Divisor::Size::intermediate, 128}};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .biases = {},
    .dtypes = bf16_only,
    .exchanges = {TokenExchange::none, TokenExchange::allgather,
                  TokenExchange::deepep_high_throughput},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend deep_gemm_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_deep_gemm",
    .summary = "DeepGEMM, FP8 blocks",
});

}  // namespace fewbit
