// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {
    {{WeightKind::plain}, {ActivationKind::none}},
    {{WeightKind::fp8_tensor}, {ActivationKind::fp8_tensor}, {89}},
    {{WeightKind::fp8_channel}, {ActivationKind::fp8_token}, {89}},
    {{WeightKind::fp8_block}, {ActivationKind::fp8_group}, {89}},
};
constexpr Divisor shapes[] = {{Divisor::Size::intermediate, 128, {WeightKind::fp8_block}}};

constexpr Rules rules{
    .devices = triton_devices,
    .weights = weights,
    .exchanges = {TokenExchange::none, TokenExchange::allgather,
                  TokenExchange::deepep_high_throughput},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend triton_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_triton",
    .summary = "Triton, 16-bit and FP8",
    .preparation = foreign::nothing<foreign::reads_rows>,
});

}  // namespace fewbit
