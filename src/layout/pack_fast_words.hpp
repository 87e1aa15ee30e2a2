// SPDX-License-Identifier: Apache-2.0
// What happens to codes in 32-bit words on their way to tiles, before blocks are moved. All
// variants give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fewbit/selection.hpp"

namespace fewbit {

// 4-bit codes less their zero points as sign and magnitude (marlin_codes.hpp).
struct SignWords {
  const std::byte* source;  // of any alignment
  std::uint32_t* out;
  std::int64_t words;
  const std::uint32_t* zeros;  // of each word: a zero point a code, at its place
  bool as_vllm;                // marlin_fp8_code_as_vllm; else codes that can't be held become 0
};

// Returns how many codes can't be held, 0 as vLLM.
using SignWordsFn = std::int64_t(const SignWords& job);
SignWordsFn sign_words_generic;
SignWordsFn sign_words_avx2;
SignWordsFn sign_words_avx512;  // needs AVX-512 F, BW, VL

// The variant of an ISA level of this machine.
SignWordsFn* sign_words(IsaLevel level);

}  // namespace fewbit
