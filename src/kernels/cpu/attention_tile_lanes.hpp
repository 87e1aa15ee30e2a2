// SPDX-License-Identifier: Apache-2.0
// The body of attention_tile in vectors of any width: the compiler's own vector types, so that one
// text serves every instruction set. Each function is inlined into the region of its caller.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/attention_tile.hpp"

#define FEWBIT_INLINE __attribute__((always_inline)) inline

namespace fewbit::attention_lanes {

// One vector width each; g++ 12 ignores vector_size with a template argument.
struct Lanes4 {
  static constexpr int count = 4;
  typedef float Float __attribute__((vector_size(16), may_alias));
  typedef std::int32_t Int __attribute__((vector_size(16), may_alias));
};
struct Lanes8 {
  static constexpr int count = 8;
  typedef float Float __attribute__((vector_size(32), may_alias));
  typedef std::int32_t Int __attribute__((vector_size(32), may_alias));
};
struct Lanes16 {
  static constexpr int count = 16;
  typedef float Float __attribute__((vector_size(64), may_alias));
  typedef std::int32_t Int __attribute__((vector_size(64), may_alias));
};

template <class V>
FEWBIT_INLINE void load(V& v, const float* from) {
  std::memcpy(&v, from, sizeof(V));
}
template <class V>
FEWBIT_INLINE void store(float* to, const V& v) {
  std::memcpy(to, &v, sizeof(V));
}

// exp(x) for x <= 0, exactly 1 at 0 and 0 below -87 (and at -infinity); NaN stays NaN. x = n ln2 +
// r with |r| <= ln2/2, exp(r) by its series up to r^7/7!: relative error below 2^-22.
template <class L>
FEWBIT_INLINE void exp_of_negative(typename L::Float& x) {
  using Float = typename L::Float;
  using Int = typename L::Int;
  constexpr float smallest = -87.0F;
  constexpr float round_to_integer = 0x1.8p23F;  // leaves n in the low bits of the sum
  const Int tiny = (Int)(x < smallest);
  const Float low = Float{} + smallest;
  const Float bounded = (Float)(((Int)low & tiny) | ((Int)x & ~tiny));
  const Float shifted = bounded * 0x1.715476p0F + round_to_integer;
  const Float n = shifted - round_to_integer;
  // ln2 in two parts, the first with few enough bits that n times it is exact.
  const Float r = (bounded - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  Float series = r * (1.0F / 5040) + 1.0F / 720;
  series = series * r + 1.0F / 120;
  series = series * r + 1.0F / 24;
  series = series * r + 1.0F / 6;
  series = series * r + 0.5F;
  series = series * r * r + r + 1.0F;
  const Int power = ((Int)shifted << 23) + (127 << 23);
  const Float value = series * (Float)power;
  x = (Float)((Int)value & ~tiny);
}

template <class L>
FEWBIT_INLINE void score_rows(const AttentionTile& tile, std::int64_t row) {
  using Float = typename L::Float;
  constexpr int width = L::count;
  const float* q = tile.queries + row * tile.dim;
  for (int key = 0; key < attention_keys; key += 2 * width) {
    Float a0{}, a1{}, b0{}, b1{}, c0{}, c1{}, d0{}, d1{};
    const float* keys = tile.keys + key;
    for (std::int64_t d = 0; d < tile.dim; ++d, keys += attention_keys) {
      Float k0, k1;
      load(k0, keys);
      load(k1, keys + width);
      const float qa = q[d], qb = q[d + tile.dim], qc = q[d + 2 * tile.dim],
                  qd = q[d + 3 * tile.dim];
      a0 += k0 * qa, a1 += k1 * qa;
      b0 += k0 * qb, b1 += k1 * qb;
      c0 += k0 * qc, c1 += k1 * qc;
      d0 += k0 * qd, d1 += k1 * qd;
    }
    float* out = tile.scores + row * attention_keys + key;
    store(out, a0), store(out + width, a1);
    store(out + attention_keys, b0), store(out + attention_keys + width, b1);
    store(out + 2 * attention_keys, c0), store(out + 2 * attention_keys + width, c1);
    store(out + 3 * attention_keys, d0), store(out + 3 * attention_keys + width, d1);
  }
}

// Turns a row of scores into weights; returns the factor of what was summed before.
template <class L>
FEWBIT_INLINE float weigh_row(const AttentionTile& tile, std::int64_t row) {
  using Float = typename L::Float;
  constexpr int width = L::count;
  float* scores = tile.scores + row * attention_keys;
  for (int key = tile.visible[row]; key < attention_keys; ++key) {
    scores[key] = -std::numeric_limits<float>::infinity();
  }
  const float before = tile.maximum[row];
  float largest = before;
  for (int key = 0; key < attention_keys; ++key) {
    largest = scores[key] > largest ? scores[key] : largest;
  }
  Float total{};
  for (int key = 0; key < attention_keys; key += width) {
    Float p;
    load(p, scores + key);
    p -= largest;
    exp_of_negative<L>(p);
    store(scores + key, p);
    total += p;
  }
  Float factor = Float{} + (before - largest);
  exp_of_negative<L>(factor);
  float sum = 0;
  for (int i = 0; i < width; ++i) sum += total[i];
  tile.maximum[row] = largest;
  tile.sum[row] = tile.sum[row] * factor[0] + sum;
  return factor[0];
}

template <class L>
FEWBIT_INLINE void add_values(const AttentionTile& tile, std::int64_t row,
                              const float (&factor)[4]) {
  using Float = typename L::Float;
  constexpr int width = L::count;
  const std::int64_t pitch = tile.padded_dim;
  for (std::int64_t d = 0; d < pitch; d += 2 * width) {
    float* out = tile.accumulator + row * pitch + d;
    Float a0, a1, b0, b1, c0, c1, d0, d1;
    load(a0, out), load(a1, out + width);
    load(b0, out + pitch), load(b1, out + pitch + width);
    load(c0, out + 2 * pitch), load(c1, out + 2 * pitch + width);
    load(d0, out + 3 * pitch), load(d1, out + 3 * pitch + width);
    a0 *= factor[0], a1 *= factor[0], b0 *= factor[1], b1 *= factor[1];
    c0 *= factor[2], c1 *= factor[2], d0 *= factor[3], d1 *= factor[3];
    const float* p = tile.scores + row * attention_keys;
    const float* values = tile.values + d;
    for (int key = 0; key < tile.keys_used; ++key, values += pitch, ++p) {
      Float v0, v1;
      load(v0, values), load(v1, values + width);
      const float pa = p[0], pb = p[attention_keys], pc = p[2 * attention_keys],
                  pd = p[3 * attention_keys];
      a0 += v0 * pa, a1 += v1 * pa;
      b0 += v0 * pb, b1 += v1 * pb;
      c0 += v0 * pc, c1 += v1 * pc;
      d0 += v0 * pd, d1 += v1 * pd;
    }
    store(out, a0), store(out + width, a1);
    store(out + pitch, b0), store(out + pitch + width, b1);
    store(out + 2 * pitch, c0), store(out + 2 * pitch + width, c1);
    store(out + 3 * pitch, d0), store(out + 3 * pitch + width, d1);
  }
}

template <class L>
FEWBIT_INLINE void attention_tile(const AttentionTile& tile) {
  static_assert(attention_keys % (2 * L::count) == 0);
  static_assert(attention_dim_tile % (2 * L::count) == 0);
  for (std::int64_t row = 0; row < tile.rows; row += attention_row_tile) {
    score_rows<L>(tile, row);
    float factor[attention_row_tile];
    for (int r = 0; r < attention_row_tile; ++r) factor[r] = weigh_row<L>(tile, row + r);
    add_values<L>(tile, row, factor);
  }
}

}  // namespace fewbit::attention_lanes

#undef FEWBIT_INLINE
