// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

// The engine takes every scheme for its own here; only these can be decoded.
constexpr WeightRule weights[] = {{{WeightKind::mxfp4},
                                   {ActivationKind::none, ActivationKind::mxfp4,
                                    ActivationKind::mxfp8, ActivationKind::fp8_tensor}}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 32}, {Divisor::Size::intermediate, 32}};

constexpr Rules rules{
    .devices = triton_devices,
    .weights = weights,
    .dtypes = both_16_bit,
    .exchanges = {TokenExchange::none, TokenExchange::allgather,
                  TokenExchange::deepep_high_throughput},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend mx_emulation_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_emulation_mx",
    .summary = "decodes MXFP4 to 16 bits",
    .preparation = foreign::nothing<foreign::reads_rows>,
});

}  // namespace fewbit
