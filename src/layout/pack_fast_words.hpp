// SPDX-License-Identifier: Apache-2.0
// What happens to codes in 32-bit words on their way to tiles, before blocks are moved. All
// variants give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fewbit/selection.hpp"

namespace fewbit {

// Words of consecutive k in another order. Code i of the result, in its column, is code order[i] of
// the source: both have words of 32 / bits codes of a column, rows of `columns` words.
struct OrderWords {
  const std::uint32_t* source;
  std::uint32_t* out;
  std::int64_t columns;  // a multiple of order_columns
  const std::int32_t* order;
  std::int64_t rows;  // of the result
  int bits;           // 4 or 8
};
inline constexpr std::int64_t order_columns = 16;

// 4-bit codes less their zero points as sign and magnitude (marlin_codes.hpp).
struct SignWords {
  const std::byte* source;  // of any alignment
  std::uint32_t* out;
  std::int64_t words;
  const std::uint32_t* zeros;  // of each word: a zero point a code, at its place
  bool as_vllm;                // marlin_fp8_code_as_vllm; else codes that can't be held become 0
};

struct WordKernels {
  void (*order)(const OrderWords& job);
  std::int64_t (*sign)(const SignWords& job);  // how many codes can't be held, 0 as vLLM
};
void order_words_generic(const OrderWords& job);
void order_words_avx2(const OrderWords& job);
void order_words_avx512(const OrderWords& job);  // needs AVX-512 F, BW, VL
std::int64_t sign_words_generic(const SignWords& job);
std::int64_t sign_words_avx2(const SignWords& job);
std::int64_t sign_words_avx512(const SignWords& job);

// The variants of an ISA level of this machine.
WordKernels word_kernels(IsaLevel level);

}  // namespace fewbit
