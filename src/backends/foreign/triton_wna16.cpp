// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {
    {{WeightKind::int4, WeightKind::int4_g32, WeightKind::int8}, {ActivationKind::none}}};
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 1, integers, GroupUse::alone},
    {Divisor::Size::intermediate, 1, integers, GroupUse::alone},
};

constexpr Rules rules{
    .devices = triton_devices,
    .weights = weights,
    .group_order = false,
    .awq_words = false,
    .loader = Loader::vllm,
    .biases = {},
    .exchanges = {TokenExchange::none, TokenExchange::allgather,
                  TokenExchange::deepep_high_throughput},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend triton_wna16_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_triton_wna16",
    .summary = "Triton, 4 and 8-bit integers",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
