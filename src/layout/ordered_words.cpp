// SPDX-License-Identifier: Apache-2.0
#include "layout/ordered_words.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace fewbit {
namespace {

using Columns = std::array<std::uint32_t, ordered_columns>;

// into |= (from >> down & mask) << up, of each column
struct Pick {
  int down;
  int up;
  std::uint32_t mask;
};

// Two arrays that do not overlap, so that the loop is vector code.
void pick(const std::uint32_t* __restrict from, Pick p, std::uint32_t* __restrict into) {
  for (std::size_t c = 0; c < std::size_t{ordered_columns}; ++c) {
    into[c] |= (from[c] >> p.down & p.mask) << p.up;
  }
}

}  // namespace

void order_words(const OrderedWords& job, std::int64_t first_n, std::span<const std::byte> words,
                 std::span<std::byte> out) {
  const std::int64_t per_word = 32 / job.bits;
  const std::uint32_t mask = (1U << job.bits) - 1U;
  const auto bytes = static_cast<std::size_t>(std::min(ordered_columns, job.dims.n - first_n) * 4);
  for (std::int64_t word = 0; word < job.dims.k / per_word; ++word) {
    Columns ordered{};
    for (std::int64_t i = 0; i < per_word; ++i) {
      const std::int64_t row = job.order[static_cast<std::size_t>(word * per_word + i)];
      Columns stored;  // what is past the last column goes nowhere
      std::memcpy(stored.data(), words.data() + (row / per_word * job.dims.n + first_n) * 4, bytes);
      pick(stored.data(),
           {.down = static_cast<int>(row % per_word) * job.bits,
            .up = static_cast<int>(i) * job.bits,
            .mask = mask},
           ordered.data());
    }
    std::memcpy(out.data() + word * ordered_columns * 4, ordered.data(), bytes);
  }
}

}  // namespace fewbit
