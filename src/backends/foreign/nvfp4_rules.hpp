// SPDX-License-Identifier: Apache-2.0
// What kernels with NVFP4 weights and activations have in common.
#pragma once

#include "backends/foreign/rules.hpp"

namespace fewbit::foreign::nvfp4 {

inline constexpr WeightRule weights[] = {{{WeightKind::nvfp4}, {ActivationKind::nvfp4}}};
inline constexpr FunctionRule silu_and_swigluoai[] = {{Activation::silu}, {Activation::swigluoai}};

using Size = Divisor::Size;
inline constexpr Divisor whole_groups[] = {{Size::hidden, 16}, {Size::intermediate, 16}};
// Scales of gate and up are swizzled together, in blocks of 128 rows.
inline constexpr Divisor swizzled_gate_up[] = {
    {Size::hidden, 16},
    {Size::intermediate, 64, Set<WeightKind>::all(), GroupUse::ignored, When::gated},
    {Size::intermediate, 16, Set<WeightKind>::all(), GroupUse::ignored, When::non_gated},
};

constexpr Rules rules_for(std::span<const Capability> capabilities,
                          std::span<const FunctionRule> functions,
                          std::span<const Divisor> shapes) {
  return {.capabilities = capabilities,
          .weights = weights,
          .functions = functions,
          .biases = {},
          .dtypes = bf16_only,
          .experts = ExpertSpread::contiguous,
          .exchanges = ordered_exchanges,
          .shapes = shapes};
}

}  // namespace fewbit::foreign::nvfp4
