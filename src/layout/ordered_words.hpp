// SPDX-License-Identifier: Apache-2.0
// GPTQ words with their rows k in another order (act-order), some columns n at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "layout/place.hpp"

namespace fewbit {

inline constexpr std::int64_t ordered_columns = 64;

struct OrderedWords {
  int bits = 4;                         // or 8
  Dims dims;                            // of the stored matrix, GptqWords of it
  std::span<const std::int32_t> order;  // row k comes from stored row order[k]
};

// words of the stored columns from first_n on, up to ordered_columns of them -> GptqWords of
// [ordered_columns, k]. Columns past the last one are not written.
void order_words(const OrderedWords& job, std::int64_t first_n, std::span<const std::byte> words,
                 std::span<std::byte> out);

}  // namespace fewbit
