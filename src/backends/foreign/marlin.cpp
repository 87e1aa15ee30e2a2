// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/marlin_preparation.hpp"
#include "backends/foreign/marlin_rules.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Rules rules =
    marlin::rules_for({TokenExchange::none, TokenExchange::allgather,
                       TokenExchange::deepep_high_throughput, TokenExchange::flashinfer_one_sided});

}  // namespace
}  // namespace foreign

const Backend marlin_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "marlin",
    .summary = "Marlin, tokens in order",
    .layout = "marlin_4bit, marlin_8bit, marlin_scales, marlin_zeros, byte_scale_grid, row_major",
    .preparation = foreign::marlin::preparation<foreign::marlin::vllm_padding>,
});

}  // namespace fewbit
