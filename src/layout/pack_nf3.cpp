// SPDX-License-Identifier: Apache-2.0
// Some rows at a time: their codes are squeezed into two planes of rows, low two bits and high bit,
// and each plane moves by blocks into its words.
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/nf3_packed.hpp"
#include "layout/pack.hpp"
#include "layout/prepare_nf3.hpp"
#include "layout/row_major.hpp"

namespace fewbit {
namespace {

static_assert(std::endian::native == std::endian::little, "eight codes are loaded as one word");

constexpr std::int64_t strip_rows = 64;

// The low two bits of eight codes.
std::uint16_t low_bits(std::uint64_t codes) {
  std::uint64_t x = codes & 0x0303030303030303U;
  x = (x | x >> 6U) & 0x000f000f000f000fU;
  x = (x | x >> 12U) & 0x000000ff000000ffU;
  return static_cast<std::uint16_t>(x | x >> 24U);
}

// Bit 2 of eight codes: the product brings bit 8 i to 56 + i.
std::uint8_t high_bits(std::uint64_t codes) {
  return static_cast<std::uint8_t>((codes >> 2U & 0x0101010101010101U) * 0x0102040810204080U >>
                                   56U);
}

struct Planes {
  std::vector<std::byte> low;   // RowMajor<2> of the rows
  std::vector<std::byte> high;  // RowMajor<1>

  void squeeze(std::span<const std::uint8_t> codes) {
    low.resize(codes.size() / 4);
    high.resize(codes.size() / 8);
    for (std::size_t i = 0; i < high.size(); ++i) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, codes.data() + 8 * i, sizeof eight);
      const std::uint16_t two_bits = low_bits(eight);
      std::memcpy(low.data() + 2 * i, &two_bits, sizeof two_bits);
      high[i] = std::byte{high_bits(eight)};
    }
  }
};

using PlacePlane = Place (*)(Dims, std::int64_t, std::int64_t, std::int64_t);

// From the plane of the first strip to the words of the matrix.
template <int bits>
ElementMover plane_mover(Dims dims, std::int64_t tile_n, PlacePlane place) {
  const Dims strip{.n = strip_rows, .k = dims.k};
  ElementMap map{.bits = bits,
                 .source = place_of<RowMajor<bits>>(strip),
                 .out = [=](std::int64_t n, std::int64_t k) { return place(dims, tile_n, n, k); },
                 .ranges = {}};
  map.ranges.push_back({.first = {}, .count = strip, .block = {.n = strip_rows, .k = 512 / bits}});
  return {std::move(map), packing_isa()};
}

}  // namespace

void pack_nf3(Dims dims, std::int64_t tile_n, std::span<const std::uint8_t> codes,
              std::span<std::byte> words) {
  assert(Nf3Packed::accepts(dims, tile_n) && std::ssize(words) == Nf3Packed::bytes(dims));
  const auto strip_codes = static_cast<std::size_t>(strip_rows * dims.k);
  Planes planes;
  // All strips of a matrix are alike: one plan, moved along.
  const ElementMover low = plane_mover<2>(dims, tile_n, Nf3Packed::low_place);
  const ElementMover high = plane_mover<1>(dims, tile_n, Nf3Packed::high_place);
  for (std::int64_t first = 0; first < dims.n; first += strip_rows) {
    planes.squeeze(codes.subspan(static_cast<std::size_t>(first * dims.k), strip_codes));
    std::byte* const out =
        words.data() + Nf3Packed::unit(dims, tile_n, first, 0) * Nf3Packed::unit_bytes;
    low.run_all(planes.low.data(), out);
    high.run_all(planes.high.data(), out);
  }
}

void unpack_nf3(Dims dims, std::int64_t tile_n, std::span<const std::byte> words,
                std::span<std::uint8_t> codes) {
  assert(Nf3Packed::accepts(dims, tile_n) && std::ssize(words) == Nf3Packed::bytes(dims));
  for (std::int64_t n = 0; n < dims.n; ++n) {
    for (std::int64_t k = 0; k < dims.k; ++k) {
      const std::uint64_t low = read_bits<2>(words, Nf3Packed::low_place(dims, tile_n, n, k));
      const std::uint64_t high = read_bits<1>(words, Nf3Packed::high_place(dims, tile_n, n, k));
      codes[static_cast<std::size_t>(n * dims.k + k)] = static_cast<std::uint8_t>(high << 2 | low);
    }
  }
}

}  // namespace fewbit
