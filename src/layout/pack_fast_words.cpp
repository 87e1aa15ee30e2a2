// SPDX-License-Identifier: Apache-2.0
// The portable variants, and the choice of one.
#include "layout/pack_fast_words.hpp"

#include "layout/pack_fast_words_lanes.hpp"

namespace fewbit {

std::int64_t sign_words_generic(const SignWords& job) {
  return word_lanes::sign_words<word_lanes::Lanes4>(job);
}

SignWordsFn* sign_words(IsaLevel level) {
#if defined(__x86_64__)
  if (level >= IsaLevel::avx512) return sign_words_avx512;
  if (level == IsaLevel::avx2) return sign_words_avx2;
#endif
  static_cast<void>(level);
  return sign_words_generic;
}

}  // namespace fewbit
