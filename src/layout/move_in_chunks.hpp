// SPDX-License-Identifier: Apache-2.0
// Codes that change on their way to Marlin tiles: some rows k at a time are written as the source
// would have them, while they are in the caches, and moved from there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/padded_matrix.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Moves chunks of columns n and rows k; keeps the plan of the last shape.
template <Layout From, Layout To>
class ChunkMover {
 public:
  explicit ChunkMover(Dims to) : to_(to) {}

  // Elements [count] of the result from `first` on, whose n and k are multiples of a tile's; chunk:
  // From of these.
  void move(Dims count, std::int64_t parts_n, Element first, const std::byte* chunk,
            std::byte* out) {
    if (!mover_ || count != count_) {
      const PaddedMatrix matrix{.from = count, .to = to_, .parts_n = parts_n, .order = {}};
      mover_.emplace(map_padded<From, To>(matrix, tile_row<To>()), packing_isa());
      count_ = count;
    }
    mover_->run_all(chunk, out + To::place(to_, first.n, first.k).byte);
  }

 private:
  Dims to_;
  Dims count_;
  std::optional<ElementMover> mover_;
};

// fill(k, count, chunk) writes From of the stored rows that the result has from k on. Padding of
// the result is left alone.
template <Layout From, Layout To, class Fill>
void move_in_chunks(const PaddedMatrix& matrix, const Fill& fill, std::span<std::byte> out) {
  constexpr std::int64_t rows = 64;
  const Dims whole{.n = matrix.from.n, .k = std::min(rows, matrix.from.k)};
  std::vector<std::byte> chunk(static_cast<std::size_t>(From::bytes(whole)));
  ChunkMover<From, To> mover(matrix.to);
  for (std::int64_t k = 0; k < matrix.from.k; k += rows) {
    const std::int64_t count = std::min(rows, matrix.from.k - k);
    fill(k, count, chunk.data());
    mover.move({.n = matrix.from.n, .k = count}, matrix.parts_n, {.n = 0, .k = k}, chunk.data(),
               out.data());
  }
}

}  // namespace fewbit
