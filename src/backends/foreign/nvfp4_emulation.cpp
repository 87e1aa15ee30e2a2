// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {{{WeightKind::nvfp4}, {ActivationKind::nvfp4}}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 16}, {Divisor::Size::intermediate, 16}};

constexpr Rules rules{
    .weights = weights,
    .biases = {},
    .dtypes = both_16_bit,
    .exchanges = {TokenExchange::none, TokenExchange::allgather,
                  TokenExchange::deepep_high_throughput},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend nvfp4_emulation_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_emulation_nvfp4",
    .summary = "decodes NVFP4 to 16 bits, activations rounded to NVFP4",
});

}  // namespace fewbit
