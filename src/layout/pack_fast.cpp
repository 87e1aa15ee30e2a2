// SPDX-License-Identifier: Apache-2.0
// The portable variant, and the choice of one.
#include "layout/pack_fast.hpp"

#include <bit>
#include <cstring>

namespace fewbit {
namespace {

static_assert(std::endian::native == std::endian::little, "tiles are words of little-endian bytes");

// Byte r of the low half: P.lo | Q.lo << 4; of the high half: P.hi | Q.hi << 4.
std::uint64_t pair_nibbles(const std::uint8_t* row) {
  std::uint64_t x = 0;
  std::memcpy(&x, row, sizeof x);
  return (x & 0xf0f0f0f00f0f0f0fU) | ((x << 28) & 0x0f0f0f0f00000000U) |
         ((x >> 28) & 0x00000000f0f0f0f0U);
}

// words[4r], r = 0..3, of the rows h = 0 and h = 1.
void store_words(std::uint64_t h0, std::uint64_t h1, std::uint8_t* words) {
  constexpr std::uint64_t even_bytes = 0x00ff00ff00ff00ffU;
  const std::uint64_t even =
      (h0 & even_bytes) | ((h1 & even_bytes) << 8);  // r = 0, 2 of both halves
  const std::uint64_t odd = ((h0 >> 8) & even_bytes) | (h1 & ~even_bytes);  // r = 1, 3
  const auto word = [](std::uint64_t pairs, int shift) {
    return static_cast<std::uint32_t>(((pairs >> shift) & 0xffffU) |
                                      ((pairs >> (32 + shift)) & 0xffffU) << 16);
  };
  const std::uint32_t out[4] = {word(even, 0), word(odd, 0), word(even, 16), word(odd, 16)};
  for (std::size_t r = 0; r < 4; ++r) std::memcpy(words + 16 * r, &out[r], sizeof out[r]);
}

}  // namespace

void pack_b12x_panel_generic(const B12xPanel& panel) {
  for (std::int64_t tile = 0; tile < panel.k / 16; ++tile) {
    std::uint8_t* out = panel.tiles + tile * panel.stride_bytes;
    for (int c = 0; c < 8; ++c) {
      for (int j = 0; j < 4; ++j) {
        const std::uint64_t h0 = pair_nibbles(panel.rows[16 * j + c] + 8 * tile);
        const std::uint64_t h1 = pair_nibbles(panel.rows[16 * j + 8 + c] + 8 * tile);
        store_words(h0, h1, out + 64 * c + 4 * j);
      }
    }
  }
}

PackB12xPanelFn* pack_b12x_panel(IsaLevel level) {
#if defined(__x86_64__)
  if (level >= IsaLevel::avx512) return pack_b12x_panel_avx512;
  if (level == IsaLevel::avx2) return pack_b12x_panel_avx2;
#endif
  static_cast<void>(level);
  return pack_b12x_panel_generic;
}

}  // namespace fewbit
