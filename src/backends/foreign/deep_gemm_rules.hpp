// SPDX-License-Identifier: Apache-2.0
// What vLLM's DeepGEMM experts for FP8 blocks need, in order or batched.
#pragma once

#include "backends/foreign/rules.hpp"

namespace fewbit::foreign::deep_gemm {

inline constexpr Capability capabilities[] = {{90, 90}, family_100};
inline constexpr Divisor shapes[] = {{Divisor::Size::hidden, 128},
                                     {Divisor::Size::intermediate, 128}};
inline constexpr Set<TokenExchange> in_order{TokenExchange::none, TokenExchange::allgather,
                                             TokenExchange::deepep_high_throughput};

constexpr Rules rules_for(std::span<const WeightRule> weights,
                          std::span<const FunctionRule> functions, Set<TokenExchange> exchanges) {
  return {.capabilities = capabilities,
          .weights = weights,
          .functions = functions,
          .non_gated = false,
          .biases = {},
          .dtypes = bf16_only,
          .exchanges = exchanges,
          .shapes = shapes};
}

}  // namespace fewbit::foreign::deep_gemm
