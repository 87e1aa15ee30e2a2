// SPDX-License-Identifier: Apache-2.0
// Tokens as kernels of tiles and of dot products take them, with guards.
#pragma once

#include <cstdint>
#include <vector>

#include "core/float_convert.hpp"
#include "kernels/cpu/tile_operand.hpp"
#include "kernels/panel_buffer.hpp"

namespace fewbit::test {

// The operand of tokens x [tokens][k], values of bf16, between guards of NaN.
class TileBuffer {
 public:
  TileBuffer(const std::vector<float>& x, std::int64_t k, std::int64_t tokens)
      : floats_(tokens * tile_row(k) / 2) {
    auto* words = reinterpret_cast<std::uint16_t*>(floats_.data());
    const std::int64_t row = tile_row(k);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t i = 0; i < row; ++i)
        words[tile_place(tokens, row, t, i)] =
            i < k ? f32_to_bf16(x[static_cast<std::size_t>(t * k + i)]) : std::uint16_t{0};
  }
  const std::uint16_t* data() { return reinterpret_cast<const std::uint16_t*>(floats_.data()); }

 private:
  GuardedFloats floats_;
};

}  // namespace fewbit::test
