// SPDX-License-Identifier: Apache-2.0
// GPTQ words with their rows k in another order (act-order), some columns n at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout/place.hpp"

namespace fewbit {

inline constexpr std::int64_t ordered_columns = 256;  // of a mover's task

struct OrderedWords {
  int bits = 4;                         // or 8
  Dims dims;                            // of the stored matrix, GptqWords of it
  std::span<const std::int32_t> order;  // row k comes from stored row order[k]
};

// One thread's memory for order_words.
struct OrderedStrip {
  std::vector<std::uint32_t> stored;   // the columns as they are, close together
  std::vector<std::uint32_t> ordered;  // GptqWords of [ordered_columns, k]
};

// words of the stored columns from first_n on, up to ordered_columns of them, in their order. What
// is past the last column means nothing.
void order_words(const OrderedWords& job, std::int64_t first_n, std::span<const std::byte> words,
                 OrderedStrip& strip);

}  // namespace fewbit
