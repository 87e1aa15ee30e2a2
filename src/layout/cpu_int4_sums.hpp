// SPDX-License-Identifier: Apache-2.0
// Sums of 4-bit codes along k, which vLLM's int4 kernels for CPUs keep beside each block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "layout/place.hpp"
#include "layout/word_source.hpp"

namespace fewbit {

inline constexpr std::int64_t sum_columns = 32;
using CodeSums = std::array<std::int32_t, sum_columns>;

// Of the columns n from first.n on over `count` k from first.k on: dims the whole matrix, its words
// as GptqWords or AwqWords have them. first.n a multiple of 32; first.k and count of 8.
CodeSums sum_codes(WordSource source, Dims dims, std::span<const std::byte> words, Element first,
                   std::int64_t count);

// The 32 codes from column first_n on in row k of words of consecutive n (AwqWords, or ColumnWords
// for gptq), as zero points are stored.
std::array<std::int8_t, sum_columns> column_codes(WordSource source, Dims dims,
                                                  std::span<const std::byte> words,
                                                  std::int64_t first_n, std::int64_t k);

// Sum of the unsigned codes of so many bytes, two a byte; signed_codes: 8 is added to each.
std::int32_t sum_row(const std::byte* codes, std::int64_t bytes, bool signed_codes);

}  // namespace fewbit
