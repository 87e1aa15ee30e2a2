// SPDX-License-Identifier: Apache-2.0
// From which element of a stored matrix each element of a padded one comes.
#pragma once

#include <cstdint>
#include <span>

#include "layout/place.hpp"

namespace fewbit {

struct PaddedMatrix {
  Dims from;
  Dims to;                   // at least `from` in every part
  std::int64_t parts_n = 1;  // equal parts of the rows (gate, up), each padded for itself
  std::span<const std::int32_t> order;  // column k is stored column order[k]; empty: k

  // {-1, -1} for padding.
  constexpr Element source(std::int64_t n, std::int64_t k) const {
    const std::int64_t part = to.n / parts_n;
    const std::int64_t stored_part = from.n / parts_n;
    if (n % part >= stored_part || k >= from.k) return {.n = -1, .k = -1};
    return {.n = n / part * stored_part + n % part,
            .k = order.empty() ? k : std::int64_t{order[static_cast<std::size_t>(k)]}};
  }
};

}  // namespace fewbit
