// SPDX-License-Identifier: Apache-2.0
// The bodies of pack_fast_words in vectors of any width: the compiler's own vector types, so that
// one text serves every instruction set. Each function is inlined into the region of its caller.
#pragma once

#include <cstdint>
#include <cstring>

#include "layout/pack_fast_words.hpp"

#define FEWBIT_INLINE __attribute__((always_inline)) inline

namespace fewbit::word_lanes {

// One vector width each; g++ 12 ignores vector_size with a template argument.
struct Lanes4 {
  static constexpr int count = 4;
  typedef std::uint32_t Words __attribute__((vector_size(16), may_alias));
  typedef std::int8_t Bytes __attribute__((vector_size(16), may_alias));
};
struct Lanes8 {
  static constexpr int count = 8;
  typedef std::uint32_t Words __attribute__((vector_size(32), may_alias));
  typedef std::int8_t Bytes __attribute__((vector_size(32), may_alias));
};

// A byte a code. held: all bits set where the code has 4 bits for its difference.
template <class L>
FEWBIT_INLINE void sign_codes(typename L::Bytes& codes, const typename L::Bytes& zeros,
                              bool as_vllm, typename L::Bytes& held) {
  using Bytes = typename L::Bytes;
  const Bytes value = codes - zeros;
  const Bytes negative = (Bytes)(value < 0);
  if (as_vllm) {
    held = ~Bytes{};
    codes = (value & ~negative) | ((15 - codes) & negative);
    return;
  }
  held = (Bytes)(value >= -8) & (Bytes)(value <= 7);
  codes = ((value & ~negative) | ((7 - value) & negative)) & held;
}

template <class L>
FEWBIT_INLINE std::int64_t lost_codes(const typename L::Bytes& held) {
  std::int64_t lost = 0;
  for (int i = 0; i < 4 * L::count; ++i) lost += held[i] == 0 ? 1 : 0;
  return lost;
}

template <class L>
FEWBIT_INLINE bool is_all(const typename L::Bytes& held) {
  std::uint64_t parts[L::count / 2];
  std::memcpy(parts, &held, sizeof held);
  std::uint64_t all = ~std::uint64_t{0};
  for (int i = 0; i < L::count / 2; ++i) all &= parts[i];
  return all == ~std::uint64_t{0};
}

// Whole vectors; `words` of them may be fewer than one holds.
template <class L>
FEWBIT_INLINE std::int64_t sign_vector(const SignWords& job, std::int64_t at, std::int64_t words) {
  using Bytes = typename L::Bytes;
  Bytes x{};
  Bytes zeros{};
  const auto bytes = static_cast<std::size_t>(words * 4);
  std::memcpy(&x, job.source + at * 4, bytes);
  std::memcpy(&zeros, job.zeros + at, bytes);
  Bytes low = x & 15;
  Bytes high = (x >> 4) & 15;
  Bytes low_held;
  Bytes high_held;
  sign_codes<L>(low, zeros & 15, job.as_vllm, low_held);
  sign_codes<L>(high, (zeros >> 4) & 15, job.as_vllm, high_held);
  const Bytes both = low | (high << 4);
  std::memcpy(job.out + at, &both, bytes);
  if (is_all<L>(low_held & high_held)) return 0;
  return lost_codes<L>(low_held) + lost_codes<L>(high_held);
}

template <class L>
FEWBIT_INLINE std::int64_t sign_words(const SignWords& job) {
  std::int64_t lost = 0;
  std::int64_t at = 0;
  for (; at + L::count <= job.words; at += L::count) lost += sign_vector<L>(job, at, L::count);
  if (at < job.words) lost += sign_vector<L>(job, at, job.words - at);
  return lost;
}

}  // namespace fewbit::word_lanes

#undef FEWBIT_INLINE
