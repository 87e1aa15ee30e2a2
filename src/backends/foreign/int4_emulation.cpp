// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {
    {{WeightKind::int4, WeightKind::int4_g32, WeightKind::int4_asym, WeightKind::int4_g32_asym},
     {ActivationKind::none}}};

// Biases would be dropped.
constexpr Rules rules{
    .weights = weights,
    .loader = Loader::vllm,
    .gptq_as_stored = false,
    .biases = {},
    .dtypes = bf16_only,
    .exchanges = {TokenExchange::none, TokenExchange::allgather,
                  TokenExchange::deepep_high_throughput},
};

}  // namespace
}  // namespace foreign

const Backend int4_emulation_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_emulation_int4",
    .summary = "decodes 4-bit integers to bf16",
    .preparation = foreign::nothing<foreign::reads_rows>,
});

}  // namespace fewbit
