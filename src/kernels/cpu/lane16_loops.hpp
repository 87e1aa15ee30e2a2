// SPDX-License-Identifier: Apache-2.0
// The loops of lane16 over any instruction set and any kind of codes. Included inside the target
// region of a level, after its struct L of operations on 16 lanes, so it includes nothing itself:
//
//   L::Floats, L::Words        16 f32, 16 words of 32 bits
//   L::direct_tokens           up to here weights go from the look-up straight into the
//                              multiply-adds; beyond, they are decoded once into the first-level
//                              cache and serve all tokens
//   L::block_tokens            tokens of one register block
//   L::raw_e4m3                e4m3 codes are decoded as 2^-8 times their value, NaN as any number;
//                              note_nan() collects the rows of NaN codes and spoil() puts NaN
//                              there. Only where all tokens go the direct way, so that each has its
//                              bits
//   L::direct_blocks(tokens)   blocks of 16 rows that run side by side where chains are long, to
//                              hide the latency of multiply-adds
#pragma once

#define FEWBIT_INLINE static inline __attribute__((always_inline))

#include "kernels/cpu/lane16_cells.hpp"

// fixed_cells: cells of a group where the kind says, and the scales' format with it; 0: the matrix
// says.
template <class Cell_, bool zeros_, int fixed_cells_ = 0>
struct Kind {
  using Cell = Cell_;
  static constexpr bool zeros = zeros_;
  static constexpr int fixed_cells = fixed_cells_;
};
constexpr std::int64_t chain_cells = 8;  // of 16 k: the longest chain of multiply-adds

template <class K>
FEWBIT_INLINE BlockPlace block_place(const Lane16Blocks& weight, std::int64_t block) {
  const std::int64_t groups = weight.groups();
  const bool shared = weight.scale_format == Lane16Scale::f32_blocks;
  const std::int64_t scale_bytes = shared ? 4 : 16 * lane16_scale_bytes(weight.scale_format);
  return {weight.codes + block * (weight.k / 16) * K::Cell::bytes,
          weight.scales + block * groups * scale_bytes,
          weight.zeros == nullptr ? nullptr : weight.zeros + block * groups * 16};
}

template <class L, class K>
FEWBIT_INLINE typename L::Floats group_scale(const Lane16Blocks& weight, const BlockPlace& at,
                                             std::int64_t g) {
  const auto global = L::same(weight.global_scale);
  if constexpr (K::Cell::own_scales) return L::mul(K::Cell::scale(at.codes, g), global);
  if (K::fixed_cells != 0) return L::mul(L::e4m3(at.scales + g * 16), global);
  switch (weight.scale_format) {
    case Lane16Scale::f8_e4m3:
      return L::mul(L::e4m3(at.scales + g * 16), global);
    case Lane16Scale::f8_e8m0:
      return L::mul(L::e8m0(at.scales + g * 16), global);
    case Lane16Scale::f16:
      return L::mul(L::f16(at.scales + g * 32), global);
    case Lane16Scale::bf16:
      return L::mul(L::bf16(at.scales + g * 32), global);
    case Lane16Scale::f32:
      return L::mul(L::f32(at.scales + g * 64), global);
    default:
      return L::mul(L::same(reinterpret_cast<const float*>(at.scales)[g]), global);
  }
}

template <class L, class K>
FEWBIT_INLINE typename K::Cell::Zero group_zero(const Lane16Blocks& weight, const BlockPlace& at,
                                                std::int64_t g) {
  if constexpr (K::zeros) {
    return K::Cell::zero(at, g, weight.offset_codes);
  } else {
    return L::zero();
  }
}

template <class L, class K>
FEWBIT_INLINE typename L::Floats weights_at(const typename K::Cell& cell, int i,
                                            const typename K::Cell::Zero& zero) {
  if constexpr (K::zeros) {
    return K::Cell::value_minus(cell, i, zero);
  } else {
    return K::Cell::value(cell, i);
  }
}

// BLOCKS blocks with TOKENS tokens, all sums in registers.
template <class L, class K, int TOKENS, int BLOCKS>
void run_direct(const Lane16Blocks& weight, std::int64_t first, const float* x, float* y) {
  using Floats = typename L::Floats;
  Floats total[BLOCKS][TOKENS];
  BlockPlace at[BLOCKS];
  [[maybe_unused]] typename L::NanRows nan[BLOCKS] = {};
#pragma GCC unroll 4
  for (int b = 0; b < BLOCKS; ++b) {
    at[b] = block_place<K>(weight, first + b);
#pragma GCC unroll 24
    for (int t = 0; t < TOKENS; ++t) total[b][t] = L::zero();
  }
  const std::int64_t all_cells = weight.k / 16;
  const std::int64_t group_cells = K::fixed_cells != 0 ? K::fixed_cells : weight.group / 16;
  const std::int64_t block_bytes = all_cells * K::Cell::bytes;
  std::int64_t at_cell = 0;
  for (std::int64_t g = 0; at_cell < all_cells; ++g) {
    typename K::Cell::Zero zero[BLOCKS];
#pragma GCC unroll 4
    for (int b = 0; b < BLOCKS; ++b) zero[b] = group_zero<L, K>(weight, at[b], g);
    const std::int64_t left = all_cells - at_cell;
    const std::int64_t end = at_cell + (left < group_cells ? left : group_cells);
    while (at_cell < end) {
      Floats part[BLOCKS][TOKENS];
#pragma GCC unroll 4
      for (int b = 0; b < BLOCKS; ++b)
#pragma GCC unroll 24
        for (int t = 0; t < TOKENS; ++t) part[b][t] = L::zero();
      const std::int64_t chain_end = end - at_cell < chain_cells ? end : at_cell + chain_cells;
      for (; at_cell < chain_end; ++at_cell, x += TOKENS * 16) {
        typename K::Cell cell[BLOCKS];
        // Behind the end of a block its stream goes on in the next blocks, BLOCKS further.
        const bool leaves = at_cell * K::Cell::bytes + L::prefetch_bytes >= block_bytes;
        const std::int64_t ahead = L::prefetch_bytes + (leaves ? (BLOCKS - 1) * block_bytes : 0);
#pragma GCC unroll 4
        for (int b = 0; b < BLOCKS; ++b) {
          const std::uint8_t* codes = at[b].codes + at_cell * K::Cell::bytes;
          K::Cell::load(cell[b], at[b].codes, at_cell, weight.offset_codes);
          if constexpr (K::Cell::raw) L::note_nan(nan[b], codes);
#pragma GCC unroll 4
          for (int line = 0; line < K::Cell::bytes; line += 64)
            __builtin_prefetch(codes + ahead + line);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
#pragma GCC unroll 4
          for (int b = 0; b < BLOCKS; ++b) {
            const Floats w = weights_at<L, K>(cell[b], i, zero[b]);
#pragma GCC unroll 24
            for (int t = 0; t < TOKENS; ++t)
              part[b][t] = L::fma(w, L::same(x[t * 16 + i]), part[b][t]);
          }
        }
      }
#pragma GCC unroll 4
      for (int b = 0; b < BLOCKS; ++b) {
        const Floats s = group_scale<L, K>(weight, at[b], g);
#pragma GCC unroll 24
        for (int t = 0; t < TOKENS; ++t) {
          if constexpr (K::Cell::raw) part[b][t] = L::mul(part[b][t], L::same(256.0F));
          total[b][t] = L::fma(s, part[b][t], total[b][t]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < BLOCKS; ++b)
#pragma GCC unroll 24
    for (int t = 0; t < TOKENS; ++t) {
      if constexpr (K::Cell::raw) total[b][t] = L::spoil(total[b][t], nan[b]);
      L::store(y + (b * TOKENS + t) * 16, total[b][t]);
    }
}

template <class L, class K, int TOKENS>
void run_direct_blocks(const Lane16Blocks& weight, const float* x, float* y) {
  constexpr int side_by_side = K::fixed_cells == 1 ? 1 : L::direct_blocks(TOKENS);
  std::int64_t b = 0;
  if constexpr (side_by_side > 1) {
    // Shorter chains overlap by themselves, and one stream is read best.
    if (weight.group > 32) {
      for (; b + side_by_side <= weight.blocks; b += side_by_side)
        run_direct<L, K, TOKENS, side_by_side>(weight, b, x, y + b * TOKENS * 16);
    }
  }
  for (; b < weight.blocks; ++b) run_direct<L, K, TOKENS, 1>(weight, b, x, y + b * TOKENS * 16);
}

// Up to chain_cells cells of one block, decoded: w[k][row], and which k share a scale.
struct Decoded {
  alignas(64) float w[chain_cells * 16 * 16];
  alignas(64) float scale[chain_cells * 16];
  int chains;
  int cells;  // of each chain
};

// Decodes the chains that begin at a cell of group g: several groups where they are short.
// Preconditions: the cells of a group divide chain_cells, or the chain does not leave its group.
template <class L, class K>
FEWBIT_INLINE void decode(const Lane16Blocks& weight, const BlockPlace& at, std::int64_t first,
                          Decoded& out) {
  const std::int64_t cells = std::int64_t{out.chains} * out.cells;
  const std::int64_t group_cells = K::fixed_cells != 0 ? K::fixed_cells : weight.group / 16;
  typename K::Cell::Zero zero{};
  float* w = out.w;
  for (std::int64_t c = 0; c < cells; ++c, w += 256) {
    const std::int64_t g = (first + c) / group_cells;
    if constexpr (K::zeros) zero = group_zero<L, K>(weight, at, g);
    if (c % out.cells == 0)
      L::store(out.scale + c / out.cells * 16, group_scale<L, K>(weight, at, g));
    typename K::Cell cell;
    K::Cell::load(cell, at.codes, first + c, weight.offset_codes);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) L::store(w + i * 16, weights_at<L, K>(cell, i, zero));
  }
}

// y[t] += scale * (w x), chain by chain, for TOKENS of the panel's `tokens`.
template <class L, int TOKENS>
void multiply_decoded(const Decoded& decoded, const float* x, int tokens, float* y) {
  using Floats = typename L::Floats;
  const float* w = decoded.w;
  for (int chain = 0; chain < decoded.chains; ++chain) {
    Floats part[TOKENS];
#pragma GCC unroll 24
    for (int t = 0; t < TOKENS; ++t) part[t] = L::zero();
    for (int c = 0; c < decoded.cells; ++c, w += 256, x += tokens * 16) {
#pragma GCC unroll 4
      for (int i = 0; i < 16; ++i) {
        const Floats wi = L::load(w + i * 16);
#pragma GCC unroll 24
        for (int t = 0; t < TOKENS; ++t) part[t] = L::fma(wi, L::same(x[t * 16 + i]), part[t]);
      }
    }
    const Floats s = L::load(decoded.scale + chain * 16);
#pragma GCC unroll 24
    for (int t = 0; t < TOKENS; ++t) L::store(y + t * 16, L::fma(s, part[t], L::load(y + t * 16)));
  }
}

using MultiplyDecoded = void (*)(const Decoded&, const float*, int, float*);

// A block with any number of tokens; by_tokens[n - 1] multiplies n of them.
template <class L, class K>
void run_decoded(const Lane16Blocks& weight, std::int64_t block, const float* x, int tokens,
                 const MultiplyDecoded* by_tokens, float* y) {
  Decoded decoded;
  const BlockPlace at = block_place<K>(weight, block);
  for (int t = 0; t < tokens; ++t) L::store(y + t * 16, L::zero());
  const std::int64_t all_cells = weight.k / 16;
  const std::int64_t group_cells = K::fixed_cells != 0 ? K::fixed_cells : weight.group / 16;
  for (std::int64_t cell = 0; cell < all_cells;) {
    const std::int64_t left = all_cells - cell;
    const std::int64_t in_group = group_cells - cell % group_cells;
    std::int64_t cells = in_group < chain_cells ? in_group : chain_cells;
    cells = left < cells ? left : cells;
    decoded.cells = static_cast<int>(cells);
    decoded.chains = 1;
    if (cells == group_cells && cells <= chain_cells / 2) {
      const std::int64_t most = chain_cells / cells;
      decoded.chains = static_cast<int>(left / cells < most ? left / cells : most);
    }
    decode<L, K>(weight, at, cell, decoded);
    int t = 0;
    for (; t + L::block_tokens <= tokens; t += L::block_tokens)
      by_tokens[L::block_tokens - 1](decoded, x + t * 16, tokens, y + t * 16);
    if (t < tokens) by_tokens[tokens - t - 1](decoded, x + t * 16, tokens, y + t * 16);
    cell += std::int64_t{decoded.chains} * decoded.cells;
    x += std::int64_t{decoded.chains} * decoded.cells * tokens * 16;
  }
}

// Multiplications of 1 to L::block_tokens tokens.
template <class L, class Counts>
struct ByTokens;
template <class L, int... less_one>
struct ByTokens<L, std::integer_sequence<int, less_one...>> {
  static constexpr MultiplyDecoded of[] = {multiply_decoded<L, less_one + 1>...};
};

// Kernels for 1 to L::direct_tokens tokens.
using RunDirect = void (*)(const Lane16Blocks&, const float*, float*);
template <class L, class K, class Counts>
struct DirectByTokens;
template <class L, class K, int... less_one>
struct DirectByTokens<L, K, std::integer_sequence<int, less_one...>> {
  static constexpr RunDirect of[] = {run_direct_blocks<L, K, less_one + 1>...};
};

template <class L, class K>
void run_kind(const Lane16Blocks& weight, const float* x, int tokens, float* y) {
  if constexpr (L::direct_tokens > 0) {
    using Table = DirectByTokens<L, K, std::make_integer_sequence<int, L::direct_tokens>>;
    if (tokens <= L::direct_tokens) return Table::of[tokens - 1](weight, x, y);
  }
  if constexpr (L::direct_tokens < max_panel_tokens) {
    using Table = ByTokens<L, std::make_integer_sequence<int, L::block_tokens>>;
    for (std::int64_t b = 0; b < weight.blocks; ++b)
      run_decoded<L, K>(weight, b, x, tokens, Table::of, y + b * tokens * 16);
  }
}

template <class L>
Lane16Fn* kernel_of(Lane16Codes codes) {
  switch (codes) {
    case Lane16Codes::nvfp4:
      return run_kind<L, Kind<E2m1Cell<L>, false, 1>>;
    case Lane16Codes::f4_e2m1:
      return run_kind<L, Kind<E2m1Cell<L>, false>>;
    case Lane16Codes::int4:
      return run_kind<L, Kind<Int4Cell<L>, false>>;
    case Lane16Codes::int4_zeros:
      return run_kind<L, Kind<ZeroInt4Cell<L>, true>>;
    case Lane16Codes::int8:
      return run_kind<L, Kind<Int8Cell<L>, false>>;
    case Lane16Codes::int8_zeros:
      return run_kind<L, Kind<ZeroInt8Cell<L>, true>>;
    case Lane16Codes::nf3:
      return run_kind<L, Kind<Nf3Cell<L>, false>>;
    case Lane16Codes::ternary:
      return run_kind<L, Kind<TernaryCell<L>, false>>;
    case Lane16Codes::q4_k:
      return run_kind<L, Kind<Q4kCell<L>, true, 2>>;
    case Lane16Codes::q6_k:
      return run_kind<L, Kind<Q6kCell<L>, false, 1>>;
    default:
      return run_kind<L, Kind<E4m3Cell<L>, false>>;
  }
}

#undef FEWBIT_INLINE
