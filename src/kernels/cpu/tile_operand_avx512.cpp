// SPDX-License-Identifier: Apache-2.0
// Every CPU with tiles has AVX-512.
#include <bit>
#include <cstring>

#include "core/float_convert.hpp"
#include "core/isa_region.hpp"
#include "kernels/cpu/tile_operand.hpp"

#if defined(__x86_64__)
namespace fewbit {

float tile_load_ordered(const std::uint8_t* values, const std::int32_t* order, std::int64_t n,
                        std::int64_t rows, std::uint16_t* to) {
  std::uint16_t largest = 0;
  for (std::int64_t k = 0; k < tile_row(n); ++k) {
    std::uint16_t bits = 0;
    if (k < n) std::memcpy(&bits, values + std::int64_t{order[k]} * 2, 2);
    to[k / tile_k * rows * tile_k + k % tile_k / 8 * 8 + tile_slot(k % 8)] = bits;
    const auto magnitude = static_cast<std::uint16_t>(bits & 0x7fffU);
    if (magnitude <= 0x7f80U && magnitude > largest) largest = magnitude;
  }
  return bf16_to_f32(largest);
}

}  // namespace fewbit

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2")

namespace fewbit {
namespace {

// Word i of a line is value (i / 8 * 8 + order of its 8) of the row.
__m512i line_order() {
  const __m512i in_eight = _mm512_set1_epi64(0x0005000100040000);  // 0 4 1 5
  const __m512i second = _mm512_set1_epi64(0x0007000300060002);    // 2 6 3 7
  const __m512i base =
      _mm512_setr_epi64(0, 0, 0x0008000800080008, 0x0008000800080008, 0x0010001000100010,
                        0x0010001000100010, 0x0018001800180018, 0x0018001800180018);
  return _mm512_or_si512(base, _mm512_mask_mov_epi64(in_eight, 0xaa, second));
}

__m256i to_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

// e^x to 2 units in the last place: 2^n e^r with |r| <= ln 2 / 2, e^r by its series. Beyond +-110
// the result is infinity or 0 all the same.
__m512 exp_of(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-110.0F), _mm512_min_ps(_mm512_set1_ps(110.0F), x));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts: n times the first is exact.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
  __m512 sum = _mm512_set1_ps(1.0F / 5040);
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F / 720));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F / 120));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F / 24));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F / 6));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.5F));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(sum, n);
}

}  // namespace

float tile_load(const std::uint8_t* values, std::int64_t n, std::int64_t rows, std::uint16_t* to) {
  const __m512i order = line_order();
  const __m512i infinity = _mm512_set1_epi16(0x7f80);
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t k = 0; k < n; k += tile_k, to += rows * tile_k) {
    const __mmask32 mask = n - k >= tile_k ? 0xffffffffU : (1U << (n - k)) - 1;
    const __m512i row = _mm512_maskz_loadu_epi16(mask, values + k * 2);
    const __m512i magnitude = _mm512_and_si512(row, _mm512_set1_epi16(0x7fff));
    const __mmask32 number = _mm512_cmple_epu16_mask(magnitude, infinity);
    largest = _mm512_mask_max_epu16(largest, number, largest, magnitude);
    _mm512_store_si512(to, _mm512_permutexvar_epi16(order, row));
  }
  // Words as floats: their order is that of the integers.
  const __m512i odd = _mm512_and_si512(largest, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
  const __m512i all = _mm512_max_epu32(odd, _mm512_slli_epi32(largest, 16));
  return std::bit_cast<float>(_mm512_reduce_max_epu32(all));
}

void tile_store_features(const float* values, std::int64_t tokens, std::int64_t row, std::int64_t k,
                         std::uint16_t* operand) {
  const __m256i order = _mm512_castsi512_si256(line_order());
  for (std::int64_t i = 0; i < tile_count(tokens); ++i) {
    const std::int64_t first = tile_begin(tokens, i);
    std::uint16_t* to = operand + tile_place(tokens, row, first, k);
    for (std::int64_t t = first; t < tile_begin(tokens, i + 1); ++t, values += 16, to += tile_k) {
      const __m256i words = to_bf16(_mm512_load_ps(values));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_permutexvar_epi16(order, words));
    }
  }
}

void sum_rows_bf16(const float* const* rows, const float* weights, std::int64_t count,
                   std::int64_t n, std::uint8_t* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t r = 0; r < count; ++r)
      sum = _mm512_fmadd_ps(_mm512_set1_ps(weights[r]), _mm512_load_ps(rows[r] + i), sum);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * 2), to_bf16(sum));
  }
}

void gate_by_sigmoid(const ActivationConstants& constants, std::int64_t count, float* gate,
                     const float* up) {
  const __m512 limit = _mm512_set1_ps(constants.limit);
  const __m512 least = _mm512_set1_ps(-constants.limit);
  const __m512 alpha = _mm512_set1_ps(-constants.alpha);
  const __m512 beta = _mm512_set1_ps(constants.beta);
  const __m512 one = _mm512_set1_ps(1.0F);
  for (std::int64_t i = 0; i < count; i += 16) {
    // Of a pair with NaN these give the second.
    const __m512 g = _mm512_min_ps(limit, _mm512_load_ps(gate + i));
    const __m512 u = _mm512_max_ps(least, _mm512_min_ps(limit, _mm512_load_ps(up + i)));
    const __m512 below = _mm512_add_ps(one, exp_of(_mm512_mul_ps(alpha, g)));
    _mm512_store_ps(gate + i, _mm512_mul_ps(_mm512_div_ps(g, below), _mm512_add_ps(u, beta)));
  }
}

}  // namespace fewbit
FEWBIT_ISA_END
#endif
