// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "kernels/cpu/machine_limits.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx512f")

namespace fewbit {

std::int64_t fma_loop_avx512(std::int64_t rounds, float* sink) {
  constexpr int chains = 16;
  __m512 acc[chains];
  // Different starts: equal chains would be one to the compiler.
#pragma GCC unroll 16
  for (int c = 0; c < chains; ++c) acc[c] = _mm512_set1_ps(static_cast<float>(c) + *sink);
  const __m512 factor = _mm512_set1_ps(0.999F);
  const __m512 term = _mm512_set1_ps(0.001F);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < chains; ++c) acc[c] = _mm512_fmadd_ps(acc[c], factor, term);
  }
#pragma GCC unroll 16
  for (int c = 0; c < chains; ++c) *sink += _mm512_reduce_add_ps(acc[c]);
  return rounds * chains * 16 * 2;
}

std::uint64_t read_loop_avx512(const std::uint8_t* data, std::int64_t size) {
  __m512i seen[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) seen[c] = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < size; i += 256) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      seen[c] = _mm512_or_si512(seen[c], _mm512_loadu_si512(data + i + c * 64));
      _mm_prefetch(data + i + c * 64 + 4096, _MM_HINT_T0);
    }
  }
  const __m512i all =
      _mm512_or_si512(_mm512_or_si512(seen[0], seen[1]), _mm512_or_si512(seen[2], seen[3]));
  return static_cast<std::uint64_t>(_mm512_reduce_or_epi64(all));
}

}  // namespace fewbit
FEWBIT_ISA_END
#endif
