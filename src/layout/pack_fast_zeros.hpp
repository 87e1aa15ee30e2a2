// SPDX-License-Identifier: Apache-2.0
// Zero points of 4 bits, words along n -> MarlinZeros<4, interleaved>: of every 64 columns, eight
// words, nibble i of word j goes to word i, at the place that eight columns have in an interleaved
// word. All variants give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fewbit/selection.hpp"
#include "layout/word_source.hpp"

namespace fewbit {

// gptq: column i of a word is nibble i; awq: the place is AutoAWQ's.
struct MarlinZeroBlocks {
  WordSource source;
  const std::byte* words;
  std::int64_t blocks;  // of 64 columns, 32 bytes
  std::byte* out;
};
using PackZerosFn = void(const MarlinZeroBlocks& job);
PackZerosFn pack_zeros_generic;
PackZerosFn pack_zeros_avx2;  // needs AVX2

// The variant of an ISA level of this machine.
PackZerosFn* pack_zeros(IsaLevel level);

}  // namespace fewbit
