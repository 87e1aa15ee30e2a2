// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "kernels/cpu/machine_limits.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx2,fma")

namespace fewbit {

std::int64_t fma_loop_avx2(std::int64_t rounds, float* sink) {
  constexpr int chains = 12;
  __m256 acc[chains];
  // Different starts: equal chains would be one to the compiler.
#pragma GCC unroll 12
  for (int c = 0; c < chains; ++c) acc[c] = _mm256_set1_ps(static_cast<float>(c) + *sink);
  const __m256 factor = _mm256_set1_ps(0.999F);
  const __m256 term = _mm256_set1_ps(0.001F);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) acc[c] = _mm256_fmadd_ps(acc[c], factor, term);
  }
  float lanes[8];
#pragma GCC unroll 12
  for (int c = 0; c < chains; ++c) {
    _mm256_storeu_ps(lanes, acc[c]);
    *sink += lanes[0];
  }
  return rounds * chains * 8 * 2;
}

std::uint64_t read_loop_avx2(const std::uint8_t* data, std::int64_t size) {
  __m256i seen[8];
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) seen[c] = _mm256_setzero_si256();
  for (std::int64_t i = 0; i < size; i += 256) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      const auto* from = reinterpret_cast<const __m256i*>(data + i + c * 32);
      seen[c] = _mm256_or_si256(seen[c], _mm256_loadu_si256(from));
    }
    _mm_prefetch(data + i + 4096, _MM_HINT_T0);
    _mm_prefetch(data + i + 4160, _MM_HINT_T0);
    _mm_prefetch(data + i + 4224, _MM_HINT_T0);
    _mm_prefetch(data + i + 4288, _MM_HINT_T0);
  }
  std::uint64_t all = 0;
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) {
    std::uint64_t words[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), seen[c]);
    all |= words[0] | words[1] | words[2] | words[3];
  }
  return all;
}

}  // namespace fewbit
FEWBIT_ISA_END
#endif
