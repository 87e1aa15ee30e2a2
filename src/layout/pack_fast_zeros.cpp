// SPDX-License-Identifier: Apache-2.0
// The portable variant, and the choice of one.
#include "layout/pack_fast_zeros.hpp"

#include <bit>
#include <cstring>

#include "layout/awq_words.hpp"

namespace fewbit {

static_assert(std::endian::native == std::endian::little, "words are loaded as little-endian");

void pack_zeros_generic(const MarlinZeroBlocks& job) {
  constexpr std::int64_t per_word = 8;
  for (std::int64_t block = 0; block < job.blocks; ++block) {
    std::uint32_t in[per_word];
    std::uint32_t out[per_word] = {};
    std::memcpy(in, job.words + block * 32, sizeof in);
    for (std::int64_t i = 0; i < per_word; ++i) {
      const std::int64_t from = job.source == WordSource::awq ? awq_slot(i, per_word) : i;
      for (std::int64_t j = 0; j < per_word; ++j) {
        out[i] |= (in[j] >> (4 * from) & 15U) << (4 * awq_slot(j, per_word));
      }
    }
    std::memcpy(job.out + block * 32, out, sizeof out);
  }
}

PackZerosFn* pack_zeros(IsaLevel level) {
#if defined(__x86_64__)
  if (level >= IsaLevel::avx2) return pack_zeros_avx2;
#endif
  static_cast<void>(level);
  return pack_zeros_generic;
}

}  // namespace fewbit
