// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{90, 109}};
constexpr WeightRule weights[] = {
    {{WeightKind::fp8_channel}, {ActivationKind::fp8_token}},
    {{WeightKind::fp8_tensor}, {ActivationKind::fp8_tensor}},
};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .non_gated = false,
    .biases = {},
    .dtypes = both_16_bit,
    .exchanges = {TokenExchange::none, TokenExchange::allgather},
};

}  // namespace
}  // namespace foreign

const Backend cutlass_fp8_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_cutlass_fp8",
    .summary = "CUTLASS grouped products of vLLM, FP8",
    .layout = foreign::unknown_layout,
    .only_forced = "the caller must allow it",
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
