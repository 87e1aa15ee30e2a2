// SPDX-License-Identifier: Apache-2.0
// The exchanges of address bits that take a block of elements from one layout to another.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "layout/pack_fast_blocks.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Where the elements of a block lie, in bits from its first element: (n, k) at n[n] + k[k]. As
// many n and as many k as the block has, both powers of two.
struct BlockPlaces {
  std::vector<std::int64_t> n;
  std::vector<std::int64_t> k;
};

constexpr std::int64_t bit_address(Place place) { return place.byte * 8 + place.bit; }

BlockPlaces block_places(const std::function<Place(std::int64_t n, std::int64_t k)>& place,
                         Element first, Dims block);

struct BlockPlan {
  std::vector<BlockCopy> lines;
  std::int64_t line_bytes = 0;
  std::vector<BitExchange> exchanges;
  std::vector<std::uint8_t> pairs;    // of a mover with them
  std::vector<std::uint8_t> shuffle;  // empty: none
  std::vector<BlockCopy> chunks;
  std::int64_t chunk_bytes = 0;
  std::int64_t buffer_bytes = 0;
  std::vector<std::int64_t> register_from;  // empty: lines are shorter than a register
  std::vector<std::int64_t> register_to;    // empty: chunks are

  BlockMoves moves() const;
};

// None where a block is no permutation of address bits, fills no register twice, is larger than
// the buffer, or lies in pieces below 4 bytes.
// element_bits: 1 to 64, a power of two.
std::optional<BlockPlan> plan_block(const BlockPlaces& source, const BlockPlaces& out,
                                    int element_bits, const BlockMover& mover);

}  // namespace fewbit
