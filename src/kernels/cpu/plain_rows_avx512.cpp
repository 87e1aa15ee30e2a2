// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "kernels/cpu/plain_rows.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

namespace fewbit {
namespace {

// Register block: 4 x 6 accumulators, 4 weights, 1 token of 32 registers.
constexpr int block_rows = 4;
constexpr int block_tokens = 6;
constexpr int prefetch_bytes = 1024;

struct Bf16 {
  static constexpr std::int64_t size = 2;
  static inline __attribute__((always_inline)) __m512 load(const std::uint8_t* p, __mmask16 mask) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
};
struct F16 {
  static constexpr std::int64_t size = 2;
  static inline __attribute__((always_inline)) __m512 load(const std::uint8_t* p, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
  }
};
struct F32 {
  static constexpr std::int64_t size = 4;
  static inline __attribute__((always_inline)) __m512 load(const std::uint8_t* p, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, p);
  }
};

// What a register block needs besides its own tokens.
struct Rows {
  const std::uint8_t* row[block_rows];  // rows past the end repeat the last one
  int count;                            // rows to store
  std::int64_t k;
  float scale;
};

// acc += w x for 16 k, or for those of the mask.
template <class T, int TOKENS>
inline __attribute__((always_inline)) void step(const Rows& rows, std::int64_t k, __mmask16 mask,
                                                const float* x, __m512 (&acc)[block_rows][TOKENS]) {
  __m512 w[block_rows];
#pragma GCC unroll 4
  for (int r = 0; r < block_rows; ++r) w[r] = T::load(rows.row[r] + k * T::size, mask);
#pragma GCC unroll 6
  for (int t = 0; t < TOKENS; ++t) {
    const __m512 xt = _mm512_load_ps(x + t * 16);
#pragma GCC unroll 4
    for (int r = 0; r < block_rows; ++r) acc[r][t] = _mm512_fmadd_ps(w[r], xt, acc[r][t]);
  }
}

// x and y point at the first of TOKENS tokens of a panel of `tokens`.
template <class T, int TOKENS>
void run_tokens(const Rows& rows, const float* x, int tokens, float* y) {
  __m512 acc[block_rows][TOKENS];
#pragma GCC unroll 4
  for (int r = 0; r < block_rows; ++r)
#pragma GCC unroll 6
    for (int t = 0; t < TOKENS; ++t) acc[r][t] = _mm512_setzero_ps();
  std::int64_t k = 0;
  for (; k + 16 <= rows.k; k += 16, x += tokens * 16) {
    if (TOKENS == 1) {
#pragma GCC unroll 4
      for (int r = 0; r < block_rows; ++r)
        _mm_prefetch(rows.row[r] + k * T::size + prefetch_bytes, _MM_HINT_T0);
    }
    step<T, TOKENS>(rows, k, 0xffff, x, acc);
  }
  if (k < rows.k) {
    const auto mask = static_cast<__mmask16>((1U << (rows.k - k)) - 1U);
    step<T, TOKENS>(rows, k, mask, x, acc);
  }
#pragma GCC unroll 6
  for (int t = 0; t < TOKENS; ++t)
#pragma GCC unroll 4
    for (int r = 0; r < block_rows; ++r) {
      const float sum = _mm512_reduce_add_ps(acc[r][t]) * rows.scale;
      y[t * 16 + r] = r < rows.count ? sum : 0.0F;
    }
}

template <class T>
void run_block(const Rows& rows, const float* x, int tokens, float* y) {
  constexpr void (*by_tokens[block_tokens])(const Rows&, const float*, int, float*) = {
      run_tokens<T, 1>, run_tokens<T, 2>, run_tokens<T, 3>,
      run_tokens<T, 4>, run_tokens<T, 5>, run_tokens<T, 6>};
  int t = 0;
  for (; t + block_tokens <= tokens; t += block_tokens)
    run_tokens<T, block_tokens>(rows, x + t * 16, tokens, y + t * 16);
  if (t < tokens) by_tokens[tokens - t - 1](rows, x + t * 16, tokens, y + t * 16);
}

template <class T>
void multiply(const PlainRows& weight, const float* x, int tokens, float* y) {
  const std::int64_t row_bytes = weight.k * T::size;
  const std::int64_t padded = (weight.rows + 15) / 16 * 16;
  for (std::int64_t first = 0; first < padded; first += block_rows) {
    Rows rows{};
    rows.k = weight.k;
    rows.scale = weight.scale;
    for (int r = 0; r < block_rows; ++r) {
      const bool inside = first + r < weight.rows;
      rows.count += inside ? 1 : 0;
      rows.row[r] = weight.values + (inside ? first + r : weight.rows - 1) * row_bytes;
    }
    run_block<T>(rows, x, tokens, y + first / 16 * tokens * 16 + first % 16);
  }
}

}  // namespace

void bf16_rows_avx512(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<Bf16>(weight, x, tokens, y);
}
void f16_rows_avx512(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<F16>(weight, x, tokens, y);
}
void f32_rows_avx512(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<F32>(weight, x, tokens, y);
}

}  // namespace fewbit
FEWBIT_ISA_END
#endif
