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
//   L::direct_chains(tokens)   chains of a block that run side by side: with few tokens one chain
//                              of multiply-adds would be waited for. Of one block, since one stream
//                              is read best
//   L::dot                     only of levels that multiply pairs of bf16: adds the products of a
//                              pair of k; activations are then lines of 32 k (tile_operand.hpp)
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
// What a step of a cell takes of a token: an f32, or the bf16 of two k.
template <class L>
struct Steps {
  using X = float;
  static constexpr int in_cell = 16;
  // Of the first token at a cell; the others follow every 16 X.
  template <int TOKENS>
  FEWBIT_INLINE const X* at(const X* x, std::int64_t cell) {
    return x + cell * TOKENS * 16;
  }
  FEWBIT_INLINE typename L::Floats add(typename L::Floats sum, const typename L::Floats& w, X x) {
    return L::fma(w, L::same(x), sum);
  }
};
template <class L>
requires requires { typename L::Pair; }
struct Steps<L> {
  using X = typename L::Pair;
  static constexpr int in_cell = 8;
  template <int TOKENS>
  FEWBIT_INLINE const X* at(const X* x, std::int64_t cell) {
    return x + cell / 2 * TOKENS * 16 + cell % 2 * 8;
  }
  FEWBIT_INLINE typename L::Floats add(typename L::Floats sum, const typename L::Words& w, X x) {
    return L::dot(sum, w, x);
  }
};

constexpr std::int64_t chain_cells = 4;    // of 16 k: the longest chain of multiply-adds
constexpr std::int64_t decoded_cells = 8;  // of 16 k: as many as stay in the first-level cache
// Chains of `cells` cells from cell `first` of a block on, the first of them in group `group`, of
// which it and later ones have `left` cells.
struct ChainPlace {
  std::int64_t first;
  std::int64_t cells;
  std::int64_t group;
  std::int64_t left;
  std::int64_t ahead;  // groups from that of a cell to that of the codes which are fetched then
};

template <class K>
FEWBIT_INLINE std::int64_t cells_of_group(const Lane16Blocks& weight) {
  return K::fixed_cells != 0 ? K::fixed_cells : weight.group / 16;
}

template <class K>
FEWBIT_INLINE BlockPlace block_place(const Lane16Blocks& weight, std::int64_t block) {
  const std::int64_t groups = weight.groups();
  const bool shared = weight.scale_format == Lane16Scale::f32_blocks;
  const std::int64_t scale_bytes = shared ? 4 : 16 * lane16_scale_bytes(weight.scale_format);
  return {weight.codes + block * (weight.k / 16) * K::Cell::bytes,
          weight.scales + block * groups * scale_bytes,
          weight.zeros == nullptr ? nullptr : weight.zeros + block * groups * 16, scale_bytes};
}

// Scales and zero points of groups [first, end). Of few bytes a code, they are no stream that the
// processor fetches in time by itself.
template <class K>
FEWBIT_INLINE void prefetch_groups(const BlockPlace& at, std::int64_t first, std::int64_t end) {
  if constexpr (K::Cell::own_scales) return;
  const std::uint8_t* scales = at.scales + first * at.scale_bytes;
  const std::int64_t bytes = (end - first) * at.scale_bytes;
  for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(scales + i);
  if constexpr (K::zeros) __builtin_prefetch(at.zeros + first * 16);
}
// By one instruction, whose stride the processor's own prefetcher then sees: eight in a row were
// worth a fifth less of the memory (mxfp4, one token, an EPYC of 2024).
FEWBIT_INLINE void prefetch_codes(const std::uint8_t* codes, std::int64_t bytes) {
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(codes + i);
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
FEWBIT_INLINE auto weights_at(const typename K::Cell& cell, int i,
                              const typename K::Cell::Zero& zero) {
  if constexpr (K::zeros) {
    return K::Cell::value_minus(cell, i, zero);
  } else {
    return K::Cell::value(cell, i);
  }
}

// CHAINS chains of `cells` cells, one after another in memory and side by side in time, with TOKENS
// tokens: total += scale * sum of each, in their order. Leaves place behind them. CELLS:
// place.cells where it is known, else 0.
template <class L, class K, int TOKENS, int CHAINS, int CELLS>
FEWBIT_INLINE void run_chains(const Lane16Blocks& weight, const BlockPlace& at, ChainPlace& place,
                              const typename Steps<L>::X* x, typename L::Floats (&total)[TOKENS],
                              [[maybe_unused]] typename L::NanRows& nan) {
  using Floats = typename L::Floats;
  using Step = Steps<L>;
  const std::int64_t cells = CELLS != 0 ? CELLS : place.cells;
  Floats part[CHAINS][TOKENS];
  std::int64_t group[CHAINS];
  typename K::Cell::Zero zero[CHAINS];
#pragma GCC unroll 8
  for (int c = 0; c < CHAINS; ++c) {
    group[c] = place.group;
    place.left -= cells;
    if (place.left == 0) {
      ++place.group;
      place.left = cells_of_group<K>(weight);
    }
    if constexpr (K::zeros) zero[c] = group_zero<L, K>(weight, at, group[c]);
#pragma GCC unroll 24
    for (int t = 0; t < TOKENS; ++t) part[c][t] = L::zero();
  }
  prefetch_groups<K>(at, group[0] + place.ahead, place.group + place.ahead);
  const std::uint8_t* ahead = at.codes + place.first * K::Cell::bytes + L::prefetch_bytes;
  // Chains of 16 steps and less leave their cells no time to be fetched one by one.
  constexpr bool at_once = CELLS != 0 && CELLS * Step::in_cell <= 16;
  if (at_once) prefetch_codes(ahead, CHAINS * CELLS * K::Cell::bytes);
  for (std::int64_t i_cell = 0; i_cell < cells; ++i_cell) {
    // In the order of memory, in which it is read fastest.
    constexpr std::int64_t piece = CHAINS * K::Cell::bytes;
    if (!at_once) prefetch_codes(ahead + i_cell * piece, piece);
    typename K::Cell cell[CHAINS];
    const typename Step::X* xc[CHAINS];
#pragma GCC unroll 8
    for (int c = 0; c < CHAINS; ++c) {
      const std::int64_t index = place.first + c * cells + i_cell;
      K::Cell::load(cell[c], at.codes, index, weight.offset_codes);
      xc[c] = Step::template at<TOKENS>(x, index);
      if constexpr (K::Cell::raw) L::note_nan(nan, at.codes + index * K::Cell::bytes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < Step::in_cell; ++i) {
#pragma GCC unroll 8
      for (int c = 0; c < CHAINS; ++c) {
        const auto w = weights_at<L, K>(cell[c], i, zero[c]);
#pragma GCC unroll 24
        for (int t = 0; t < TOKENS; ++t) part[c][t] = Step::add(part[c][t], w, xc[c][t * 16 + i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < CHAINS; ++c) {
    const Floats s = group_scale<L, K>(weight, at, group[c]);
#pragma GCC unroll 24
    for (int t = 0; t < TOKENS; ++t) {
      if constexpr (K::Cell::raw) part[c][t] = L::mul(part[c][t], L::same(256.0F));
      total[t] = L::fma(s, part[c][t], total[t]);
    }
  }
  place.first += CHAINS * cells;
}

// Chains of CELLS cells side by side: as many as the level wants, of cells in 16 registers and in
// memory of 4 KiB at most, half of how far ahead it is fetched.
template <class L, class K, int CELLS>
constexpr int side_by_side(int tokens) {
  constexpr std::int64_t cell_bytes = sizeof(typename K::Cell);
  constexpr std::int64_t most_bytes = 16 * sizeof(typename L::Words);
  int chains = L::direct_chains(tokens);
  while (chains > 1 && (chains * cell_bytes > most_bytes || chains * CELLS * K::Cell::bytes > 4096))
    chains /= 2;
  return chains;
}

// As many chains side by side as fit into the block, where groups are of whole chains; then half as
// many, and so on.
template <class L, class K, int TOKENS, int CELLS, int CHAINS = side_by_side<L, K, CELLS>(TOKENS)>
FEWBIT_INLINE void run_steps(const Lane16Blocks& weight, const BlockPlace& at, ChainPlace& place,
                             const typename Steps<L>::X* x, typename L::Floats (&total)[TOKENS],
                             typename L::NanRows& nan) {
  while (place.first + CHAINS * CELLS <= weight.k / 16)
    run_chains<L, K, TOKENS, CHAINS, CELLS>(weight, at, place, x, total, nan);
  if constexpr (CHAINS > 2)
    run_steps<L, K, TOKENS, CELLS, CHAINS / 2>(weight, at, place, x, total, nan);
}

// One block with TOKENS tokens, all sums in registers; results every y_token floats.
template <class L, class K, int TOKENS>
void run_direct(const Lane16Blocks& weight, std::int64_t block, const typename Steps<L>::X* x,
                float* y, std::int64_t y_token) {
  typename L::Floats total[TOKENS];
#pragma GCC unroll 24
  for (int t = 0; t < TOKENS; ++t) total[t] = L::zero();
  [[maybe_unused]] typename L::NanRows nan = {};
  const BlockPlace at = block_place<K>(weight, block);
  const std::int64_t all_cells = weight.k / 16;
  const std::int64_t group_cells = cells_of_group<K>(weight);
  ChainPlace place{.first = 0,
                   .cells = 0,
                   .group = 0,
                   .left = group_cells,
                   .ahead = L::prefetch_bytes / (K::Cell::bytes * group_cells)};
  if constexpr (L::direct_chains(TOKENS) == 1) {
    // Tokens enough for chains of their own.
  } else if constexpr (K::fixed_cells != 0) {
    run_steps<L, K, TOKENS, K::fixed_cells>(weight, at, place, x, total, nan);
  } else if (group_cells % chain_cells == 0) {
    run_steps<L, K, TOKENS, chain_cells>(weight, at, place, x, total, nan);
  } else if (group_cells == 2) {
    run_steps<L, K, TOKENS, 2>(weight, at, place, x, total, nan);
  }
  while (place.first < all_cells) {
    const std::int64_t left = all_cells - place.first;
    place.cells = place.left < chain_cells ? place.left : chain_cells;
    if (left < place.cells) place.cells = left;
    run_chains<L, K, TOKENS, 1, K::fixed_cells>(weight, at, place, x, total, nan);
  }
#pragma GCC unroll 24
  for (int t = 0; t < TOKENS; ++t) {
    if constexpr (K::Cell::raw) total[t] = L::spoil(total[t], nan);
    L::store(y + t * y_token, total[t]);
  }
}

template <class L, class K, int TOKENS>
void run_direct_blocks(const Lane16Blocks& weight, const float* x, float* y) {
  for (std::int64_t b = 0; b < weight.blocks; ++b)
    run_direct<L, K, TOKENS>(weight, b, x, y + b * TOKENS * 16, 16);
}

// Up to decoded_cells cells of one block, decoded: w[k][row], and which k share a scale.
struct Decoded {
  alignas(64) float w[decoded_cells * 16 * 16];
  alignas(64) float scale[decoded_cells * 16];
  int chains;
  int cells;  // of each chain
};

// Decodes the chains that begin at a cell, none of which leaves its group.
template <class L, class K>
FEWBIT_INLINE void decode(const Lane16Blocks& weight, const BlockPlace& at, std::int64_t first,
                          Decoded& out) {
  const std::int64_t cells = std::int64_t{out.chains} * out.cells;
  const std::int64_t group_cells = cells_of_group<K>(weight);
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
  const int parts = (tokens + L::block_tokens - 1) / L::block_tokens;  // of as equal a size
  const std::int64_t all_cells = weight.k / 16;
  const std::int64_t group_cells = cells_of_group<K>(weight);
  for (std::int64_t cell = 0; cell < all_cells;) {
    const std::int64_t left = all_cells - cell;
    const std::int64_t in_group = group_cells - cell % group_cells;
    std::int64_t cells = in_group < chain_cells ? in_group : chain_cells;
    cells = left < cells ? left : cells;
    decoded.cells = static_cast<int>(cells);
    decoded.chains = 1;
    if (group_cells % cells == 0 && cell % cells == 0) {
      const std::int64_t most = decoded_cells / cells;
      decoded.chains = static_cast<int>(left / cells < most ? left / cells : most);
    }
    decode<L, K>(weight, at, cell, decoded);
    for (int t = 0, i = 1; t < tokens; ++i) {
      const int end = tokens * i / parts;
      by_tokens[end - t - 1](decoded, x + t * 16, tokens, y + t * 16);
      t = end;
    }
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
