// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "core/isa_region.hpp"
#include "kernels/cpu/plain_rows.hpp"

FEWBIT_ISA_BEGIN("avx2,fma,f16c")

namespace fewbit {
namespace {

// Register block: 4 x 3 accumulators, 3 tokens, 1 weight of 16 registers.
constexpr int block_rows = 4;
constexpr int block_tokens = 3;
constexpr int prefetch_bytes = 1024;

struct Bf16 {
  static constexpr std::int64_t size = 2;
  static inline __attribute__((always_inline)) __m256 load(const std::uint8_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
};
struct F16 {
  static constexpr std::int64_t size = 2;
  static inline __attribute__((always_inline)) __m256 load(const std::uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};
struct F32 {
  static constexpr std::int64_t size = 4;
  static inline __attribute__((always_inline)) __m256 load(const std::uint8_t* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
};

// What a register block needs besides its own tokens.
struct Rows {
  const std::uint8_t* row[block_rows];  // rows past the end repeat the last one
  int count;                            // rows to store
  std::int64_t k;
  float scale;
};

// acc += w x for the 8 k at w[r] and x.
template <class T, int TOKENS>
inline __attribute__((always_inline)) void step(const std::uint8_t* const (&w)[block_rows],
                                                std::int64_t offset, const float* x,
                                                __m256 (&acc)[block_rows][TOKENS]) {
  __m256 xt[TOKENS];
#pragma GCC unroll 3
  for (int t = 0; t < TOKENS; ++t) xt[t] = _mm256_load_ps(x + t * 16);
#pragma GCC unroll 4
  for (int r = 0; r < block_rows; ++r) {
    const __m256 wr = T::load(w[r] + offset);
#pragma GCC unroll 3
    for (int t = 0; t < TOKENS; ++t) acc[r][t] = _mm256_fmadd_ps(wr, xt[t], acc[r][t]);
  }
}

inline __attribute__((always_inline)) float sum_lanes(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// x and y point at the first of TOKENS tokens of a panel of `tokens`.
template <class T, int TOKENS>
void run_tokens(const Rows& rows, const float* x, int tokens, float* y) {
  __m256 acc[block_rows][TOKENS];
#pragma GCC unroll 4
  for (int r = 0; r < block_rows; ++r)
#pragma GCC unroll 3
    for (int t = 0; t < TOKENS; ++t) acc[r][t] = _mm256_setzero_ps();
  std::int64_t k = 0;
  for (; k + 16 <= rows.k; k += 16, x += tokens * 16) {
    if (TOKENS == 1) {
#pragma GCC unroll 4
      for (int r = 0; r < block_rows; ++r)
        _mm_prefetch(rows.row[r] + k * T::size + prefetch_bytes, _MM_HINT_T0);
    }
    step<T, TOKENS>(rows.row, k * T::size, x, acc);
    step<T, TOKENS>(rows.row, (k + 8) * T::size, x + 8, acc);
  }
  if (k < rows.k) {
    std::uint8_t tail[block_rows][64] = {};
    for (int r = 0; r < block_rows; ++r)
      std::memcpy(tail[r], rows.row[r] + k * T::size,
                  static_cast<std::size_t>((rows.k - k) * T::size));
    const std::uint8_t* const row[block_rows] = {tail[0], tail[1], tail[2], tail[3]};
    step<T, TOKENS>(row, 0, x, acc);
    step<T, TOKENS>(row, 8 * T::size, x + 8, acc);
  }
#pragma GCC unroll 3
  for (int t = 0; t < TOKENS; ++t)
#pragma GCC unroll 4
    for (int r = 0; r < block_rows; ++r)
      y[t * 16 + r] = r < rows.count ? sum_lanes(acc[r][t]) * rows.scale : 0.0F;
}

template <class T>
void run_block(const Rows& rows, const float* x, int tokens, float* y) {
  constexpr void (*by_tokens[block_tokens])(const Rows&, const float*, int, float*) = {
      run_tokens<T, 1>, run_tokens<T, 2>, run_tokens<T, 3>};
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

void bf16_rows_avx2(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<Bf16>(weight, x, tokens, y);
}
void f16_rows_avx2(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<F16>(weight, x, tokens, y);
}
void f32_rows_avx2(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<F32>(weight, x, tokens, y);
}

}  // namespace fewbit
FEWBIT_ISA_END
