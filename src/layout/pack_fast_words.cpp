// SPDX-License-Identifier: Apache-2.0
// The portable variants, and the choice of one.
#include "layout/pack_fast_words.hpp"

#include "layout/pack_fast_words_lanes.hpp"

namespace fewbit {

void order_words_generic(const OrderWords& job) {
  word_lanes::order_words<word_lanes::Lanes4>(job);
}

std::int64_t sign_words_generic(const SignWords& job) {
  return word_lanes::sign_words<word_lanes::Lanes4>(job);
}

WordKernels word_kernels(IsaLevel level) {
#if defined(__x86_64__)
  if (level >= IsaLevel::avx512) return {.order = order_words_avx512, .sign = sign_words_avx512};
  if (level == IsaLevel::avx2) return {.order = order_words_avx2, .sign = sign_words_avx2};
#endif
  static_cast<void>(level);
  return {.order = order_words_generic, .sign = sign_words_generic};
}

}  // namespace fewbit
