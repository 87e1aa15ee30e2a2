// SPDX-License-Identifier: Apache-2.0
// The loops of plain_rows in 8 lanes. Included inside the target region of a level, after
// <cstring>, with its struct L of operations; it includes nothing itself:
//
//   L::Lanes                        8 f32
//   L::bf16, f16, f32(p)            8 values of a type at any address, as f32
//   L::zero(), load(p), fma(a, b, c)
//   L::sum(x)                       of the lanes: ((0+4) + (2+6)) + ((1+5) + (3+7))
//   L::block_tokens                 tokens of a register block, of block_rows rows
#pragma once

#define FEWBIT_INLINE static inline __attribute__((always_inline))

constexpr int block_rows = 4;
constexpr int prefetch_bytes = 1024;

template <class L>
struct Bf16 {
  static constexpr std::int64_t size = 2;
  FEWBIT_INLINE typename L::Lanes load(const std::uint8_t* p) { return L::bf16(p); }
};
template <class L>
struct F16 {
  static constexpr std::int64_t size = 2;
  FEWBIT_INLINE typename L::Lanes load(const std::uint8_t* p) { return L::f16(p); }
};
template <class L>
struct F32 {
  static constexpr std::int64_t size = 4;
  FEWBIT_INLINE typename L::Lanes load(const std::uint8_t* p) { return L::f32(p); }
};

// What a register block needs besides its own tokens.
struct Rows {
  const std::uint8_t* row[block_rows];  // rows past the end repeat the last one
  int count;                            // rows to store
  std::int64_t k;
  float scale;
};

// acc += w x for the 8 k at w[r] and x.
template <class L, class T, int TOKENS>
FEWBIT_INLINE void step(const std::uint8_t* const (&w)[block_rows], std::int64_t offset,
                        const float* x, typename L::Lanes (&acc)[block_rows][TOKENS]) {
  typename L::Lanes xt[TOKENS];
#pragma GCC unroll 4
  for (int t = 0; t < TOKENS; ++t) xt[t] = L::load(x + t * 16);
#pragma GCC unroll 4
  for (int r = 0; r < block_rows; ++r) {
    const typename L::Lanes wr = T::load(w[r] + offset);
#pragma GCC unroll 4
    for (int t = 0; t < TOKENS; ++t) acc[r][t] = L::fma(wr, xt[t], acc[r][t]);
  }
}

// x and y point at the first of TOKENS tokens of a panel of `tokens`.
template <class L, class T, int TOKENS>
void run_tokens(const Rows& rows, const float* x, int tokens, float* y) {
  typename L::Lanes acc[block_rows][TOKENS];
#pragma GCC unroll 4
  for (int r = 0; r < block_rows; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < TOKENS; ++t) acc[r][t] = L::zero();
  std::int64_t k = 0;
  for (; k + 16 <= rows.k; k += 16, x += tokens * 16) {
    if (TOKENS == 1) {
#pragma GCC unroll 4
      for (int r = 0; r < block_rows; ++r)
        __builtin_prefetch(rows.row[r] + k * T::size + prefetch_bytes);
    }
    step<L, T, TOKENS>(rows.row, k * T::size, x, acc);
    step<L, T, TOKENS>(rows.row, (k + 8) * T::size, x + 8, acc);
  }
  if (k < rows.k) {
    std::uint8_t tail[block_rows][64] = {};
    for (int r = 0; r < block_rows; ++r)
      std::memcpy(tail[r], rows.row[r] + k * T::size,
                  static_cast<std::size_t>((rows.k - k) * T::size));
    const std::uint8_t* const row[block_rows] = {tail[0], tail[1], tail[2], tail[3]};
    step<L, T, TOKENS>(row, 0, x, acc);
    step<L, T, TOKENS>(row, 8 * T::size, x + 8, acc);
  }
#pragma GCC unroll 4
  for (int t = 0; t < TOKENS; ++t)
#pragma GCC unroll 4
    for (int r = 0; r < block_rows; ++r)
      y[t * 16 + r] = r < rows.count ? L::sum(acc[r][t]) * rows.scale : 0.0F;
}

// Blocks of 1 to L::block_tokens tokens.
using RunTokens = void (*)(const Rows&, const float*, int, float*);
template <class L, class T, class Counts>
struct RunByTokens;
template <class L, class T, int... less_one>
struct RunByTokens<L, T, std::integer_sequence<int, less_one...>> {
  static constexpr RunTokens of[] = {run_tokens<L, T, less_one + 1>...};
};

template <class L, class T>
void run_block(const Rows& rows, const float* x, int tokens, float* y) {
  using Table = RunByTokens<L, T, std::make_integer_sequence<int, L::block_tokens>>;
  for (int t = 0; t < tokens; t += L::block_tokens) {
    const int count = tokens - t < L::block_tokens ? tokens - t : L::block_tokens;
    Table::of[count - 1](rows, x + t * 16, tokens, y + t * 16);
  }
}

template <class L, class T>
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
    run_block<L, T>(rows, x, tokens, y + first / 16 * tokens * 16 + first % 16);
  }
}

#undef FEWBIT_INLINE
