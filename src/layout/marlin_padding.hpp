// SPDX-License-Identifier: Apache-2.0
// To which sizes vLLM pads matrices whose sizes no Marlin tile divides. (MoE layers of integer
// codes: marlin_padded_intermediate.)
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Thread blocks cover 64 n x 128 k or 128 n x 64 k.
inline constexpr std::int64_t marlin_short_side = 64;
inline constexpr std::int64_t marlin_long_side = 128;

// The intermediate size of an NVFP4 MoE layer; none when no padding of it helps, because
// hidden_size is no multiple of 64.
constexpr std::optional<std::int64_t> marlin_nvfp4_intermediate(std::int64_t hidden_size,
                                                                std::int64_t intermediate_size) {
  if (hidden_size % marlin_long_side == 0) return round_up(intermediate_size, marlin_short_side);
  if (hidden_size % marlin_short_side == 0) return round_up(intermediate_size, marlin_long_side);
  return std::nullopt;
}

// A dense layer: whichever way round is smaller. group_size <= 0: one group over k.
constexpr Dims marlin_dense_dims(Dims dims, std::int64_t group_size) {
  const std::int64_t group = group_size > 0 ? group_size : 1;
  const Dims narrow{.n = round_up(dims.n, marlin_short_side),
                    .k = round_up(dims.k, std::lcm(marlin_long_side, group))};
  const Dims wide{.n = round_up(dims.n, marlin_long_side),
                  .k = round_up(dims.k, std::lcm(marlin_short_side, group))};
  return narrow.n * narrow.k <= wide.n * wide.k ? narrow : wide;
}

}  // namespace fewbit
