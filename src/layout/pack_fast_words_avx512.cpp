// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "layout/pack_fast_words_lanes.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512vl")

namespace fewbit {

std::int64_t sign_words_avx512(const SignWords& job) {
  return word_lanes::sign_words<word_lanes::Lanes16>(job);
}

}  // namespace fewbit

FEWBIT_ISA_END
#endif
