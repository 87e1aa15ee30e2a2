// SPDX-License-Identifier: Apache-2.0
// What TensorRT-LLM's int4 MoE kernels need, whoever calls them.
#pragma once

#include "backends/foreign/rules.hpp"

namespace fewbit::foreign::mxint4 {

inline constexpr WeightRule group_32_weights[] = {{{WeightKind::int4_g32}, {ActivationKind::none}}};
// vLLM lists swigluoai, but its parameters do not reach the kernel.
inline constexpr FunctionRule silu_only[] = {{Activation::silu, false}};
// Codes lie in blocks of 256 columns.
inline constexpr Divisor shapes[] = {{Divisor::Size::hidden, 256},
                                     {Divisor::Size::intermediate, 256}};
// Of the launcher.
inline constexpr RouterLimits router{.most_top_k = 32,
                                     .experts_multiple = 4,
                                     .more_experts_than_top_k = true,
                                     .llama4_top_1 = true,
                                     .most_top_groups = 4};

constexpr Rules rules_for(Loader loader, std::span<const Capability> capabilities,
                          Set<TokenExchange> exchanges = Set<TokenExchange>::all()) {
  return {.capabilities = capabilities,
          .weights = group_32_weights,
          .zero_points = false,
          .group_order = false,
          .loader = loader,
          .functions = silu_only,
          .non_gated = false,
          .biases = {},
          .dtypes = bf16_only,
          .experts = ExpertSpread::contiguous,
          .exchanges = exchanges,
          .shapes = shapes};
}

}  // namespace fewbit::foreign::mxint4
