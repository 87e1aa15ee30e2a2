// SPDX-License-Identifier: Apache-2.0
#include "layout/ordered_words.hpp"

#include <algorithm>
#include <cstring>

namespace fewbit {
namespace {

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
                 OrderedStrip& strip) {
  constexpr auto columns = static_cast<std::size_t>(ordered_columns);
  const std::int64_t per_word = 32 / job.bits;
  const auto rows = static_cast<std::size_t>(job.dims.k / per_word);
  const auto bytes = static_cast<std::size_t>(std::min(ordered_columns, job.dims.n - first_n) * 4);
  strip.stored.resize(rows * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    std::memcpy(strip.stored.data() + row * columns,
                words.data() + (static_cast<std::int64_t>(row) * job.dims.n + first_n) * 4, bytes);
  }
  strip.ordered.assign(rows * columns, 0);
  for (std::int64_t k = 0; k < job.dims.k; ++k) {
    const std::int64_t row = job.order[static_cast<std::size_t>(k)];
    pick(strip.stored.data() + row / per_word * ordered_columns,
         {.down = static_cast<int>(row % per_word) * job.bits,
          .up = static_cast<int>(k % per_word) * job.bits,
          .mask = (1U << job.bits) - 1U},
         strip.ordered.data() + k / per_word * ordered_columns);
  }
}

}  // namespace fewbit
