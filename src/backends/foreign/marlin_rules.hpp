// SPDX-License-Identifier: Apache-2.0
// What vLLM's Marlin experts need, in order or batched.
#pragma once

#include "backends/foreign/rules.hpp"

namespace fewbit::foreign::marlin {

inline constexpr Capability capabilities[] = {{75}};
// Any activation key is taken and ignored: activations stay in 16 bits.
inline constexpr WeightRule weights[] = {
    {{WeightKind::int4, WeightKind::int4_g32, WeightKind::int4_asym, WeightKind::int4_g32_asym,
      WeightKind::int8, WeightKind::nvfp4, WeightKind::mxfp4, WeightKind::mxfp8,
      WeightKind::fp8_tensor, WeightKind::fp8_channel, WeightKind::fp8_block},
     Set<ActivationKind>::all()}};
inline constexpr std::int64_t groups[] = {0, 32, 64, 128};
inline constexpr DTypeRule dtypes[] = {{DType::f16}, {DType::bf16, {80}}};

inline constexpr Set<WeightKind> unpadded{WeightKind::mxfp8, WeightKind::fp8_tensor,
                                          WeightKind::fp8_channel, WeightKind::fp8_block};
using Size = Divisor::Size;
// Integers: the intermediate size is padded unless act-order needs its rows as they are.
// NVFP4 and MXFP4: padded to a tile. The rest: tiles of 64 x 128 or 128 x 64 must fit.
inline constexpr Divisor shapes[] = {
    {Size::hidden, 128, integers},
    {Size::intermediate, 1, integers, GroupUse::alone, When::no_group_order},
    {Size::intermediate, 64, integers, GroupUse::at_least, When::group_order},
    {Size::hidden, 64, {WeightKind::nvfp4}},
    {Size::intermediate, 16, {WeightKind::nvfp4}},
    {Size::hidden, 32, {WeightKind::mxfp4}},
    {Size::intermediate, 32, {WeightKind::mxfp4}},
    {Size::hidden, 64, unpadded},
    {Size::intermediate, 64, unpadded, GroupUse::ignored, When::hidden_128},
    {Size::intermediate, 128, unpadded, GroupUse::ignored, When::not_hidden_128},
    {Size::hidden, 128, {WeightKind::fp8_block}},
    {Size::intermediate, 128, {WeightKind::fp8_block}},
};

constexpr Rules rules_for(Set<TokenExchange> exchanges) {
  return {.capabilities = capabilities,
          .weights = weights,
          .integer_groups = groups,
          .loader = Loader::vllm_marlin,
          .dtypes = dtypes,
          .exchanges = exchanges,
          .shapes = shapes,
          .arithmetic = "16-bit activations, f32 accumulation"};
}

}  // namespace fewbit::foreign::marlin
