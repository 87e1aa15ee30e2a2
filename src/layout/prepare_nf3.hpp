// SPDX-License-Identifier: Apache-2.0
// Packing NF3 codes, some rows at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fewbit/layouts.hpp"
#include "layout/element_mover.hpp"
#include "layout/place.hpp"

namespace fewbit {

// One thread's memory for 64 rows: their planes by rows, then by units.
struct Nf3Planes {
  explicit Nf3Planes(std::int64_t k);
  std::vector<std::byte> low;
  std::vector<std::byte> high;
  std::vector<std::byte> low_units;
  std::vector<std::byte> high_units;
};

// Packs rows of a matrix [n, k] with one code, 0 to 7, a byte into Nf3Packed. The plan of its moves
// is made once. Precondition: Nf3Packed::accepts(dims, tile_n).
class Nf3Packer {
 public:
  Nf3Packer(Dims dims, std::int64_t tile_n);
  // codes: of the rows first to end, multiples of 64; words: of the whole matrix, those of these
  // rows are written.
  void pack_rows(std::int64_t first, std::int64_t end, const std::uint8_t* codes, std::byte* words,
                 Nf3Planes& planes) const;

 private:
  Dims dims_;
  std::int64_t tile_n_;
  ElementMover low_;
  ElementMover high_;
};

// codes [n, k], one a byte, each 0 to 7 -> Nf3Packed::bytes(dims) bytes, all written.
// Precondition: Nf3Packed::accepts(dims, tile_n).
void pack_nf3(Dims dims, std::int64_t tile_n, std::span<const std::uint8_t> codes,
              std::span<std::byte> words);
// The inverse.
void unpack_nf3(Dims dims, std::int64_t tile_n, std::span<const std::byte> words,
                std::span<std::uint8_t> codes);

}  // namespace fewbit
