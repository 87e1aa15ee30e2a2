// SPDX-License-Identifier: Apache-2.0
// 64 rows at a time: their codes are squeezed into two planes of rows, low two bits and high bit,
// each plane moves by blocks into the order of units, and the two are joined.
#include <cassert>
#include <utility>
#include <vector>

#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/nf3_packed.hpp"
#include "layout/pack.hpp"
#include "layout/pack_fast_nf3.hpp"
#include "layout/prepare_nf3.hpp"
#include "layout/row_major.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t strip_rows = 64;
constexpr std::int64_t strip_units = strip_rows / 2;  // of 16 k

using PlacePlane = Place (*)(Dims, std::int64_t, std::int64_t, std::int64_t);

// From a plane of rows to that plane of the units of a strip, without the bytes of the other one.
template <int bits>
ElementMover plane_mover(std::int64_t k, PlacePlane place) {
  const Dims strip{.n = strip_rows, .k = k};
  ElementMap map{.bits = bits,
                 .source = place_of<RowMajor<bits>>(strip),
                 .out =
                     [=](std::int64_t n, std::int64_t at) {
                       const Place p = place(strip, strip_rows, n, at);
                       constexpr std::int64_t first = bits == 1 ? 8 : 0;  // bytes of a unit
                       return Place{.byte = p.byte / Nf3Packed::unit_bytes * (4 * bits) +
                                            p.byte % Nf3Packed::unit_bytes - first,
                                    .bit = p.bit};
                     },
                 .ranges = {}};
  map.read_soon = true;
  map.ranges.push_back({.first = {}, .count = strip, .block = {.n = strip_rows, .k = 512 / bits}});
  return {std::move(map), packing_isa()};
}

}  // namespace

Nf3Planes::Nf3Planes(std::int64_t k)
    : low(static_cast<std::size_t>(strip_rows * k / 4)),
      high(low.size() / 2),
      low_units(low.size()),
      high_units(high.size()) {}

Nf3Packer::Nf3Packer(Dims dims, std::int64_t tile_n)
    : dims_(dims),
      tile_n_(tile_n),
      low_(plane_mover<2>(dims.k, Nf3Packed::low_place)),
      high_(plane_mover<1>(dims.k, Nf3Packed::high_place)) {
  assert(Nf3Packed::accepts(dims, tile_n));
}

void Nf3Packer::pack_rows(std::int64_t first, std::int64_t end, const std::uint8_t* codes,
                          std::byte* words, Nf3Planes& planes) const {
  const Nf3Kernels kernels = nf3_kernels(packing_isa());
  for (std::int64_t n = first; n < end; n += strip_rows) {
    kernels.squeeze({.codes = codes + (n - first) * dims_.k,
                     .count = static_cast<std::size_t>(strip_rows * dims_.k),
                     .low = planes.low.data(),
                     .high = planes.high.data()});
    low_.run_all(planes.low.data(), planes.low_units.data());
    high_.run_all(planes.high.data(), planes.high_units.data());
    for (std::int64_t k = 0; k < dims_.k; k += 16) {
      const std::int64_t unit = k / 16 * strip_units;
      kernels.join({.low = planes.low_units.data() + unit * 8,
                    .high = planes.high_units.data() + unit * 4,
                    .units = strip_units,
                    .out = words + Nf3Packed::unit(dims_, tile_n_, n, k) * Nf3Packed::unit_bytes});
    }
  }
  block_mover(packing_isa()).fence();
}

void pack_nf3(Dims dims, std::int64_t tile_n, std::span<const std::uint8_t> codes,
              std::span<std::byte> words) {
  assert(std::ssize(words) == Nf3Packed::bytes(dims));
  Nf3Planes planes(dims.k);
  Nf3Packer(dims, tile_n).pack_rows(0, dims.n, codes.data(), words.data(), planes);
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
