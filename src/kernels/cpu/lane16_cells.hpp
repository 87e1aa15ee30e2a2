// SPDX-License-Identifier: Apache-2.0
// What lane16_loops.hpp reads: the kinds of codes over the operations of a level. Included by it,
// in the target region of a level, so it includes nothing itself.
#pragma once

// Where the codes, scales and zero points of one block stand.
struct BlockPlace {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  const std::uint8_t* zeros;
  std::int64_t scale_bytes;  // of a group
};

// 16 k of 16 rows, loaded as far as pays, from the codes of a block of rows. value(i): weights at
// k = i of the cell; value_minus(i, zero) and zero() in kinds with zero points.
template <class L, std::int64_t bytes_>
struct CellBase {
  using Zero = typename L::Floats;
  static constexpr bool raw = false;
  static constexpr bool own_scales = false;      // scale(): they lie among the codes
  static constexpr std::int64_t bytes = bytes_;  // of a cell, scales among them too
};
template <class L>
struct NibbleCell : CellBase<L, 128> {
  typename L::Words half[2];
};
template <class L>
struct E2m1Cell : NibbleCell<L> {
  FEWBIT_INLINE void load(E2m1Cell& cell, const std::uint8_t* block, std::int64_t index,
                          bool /*offset*/) {
    const std::uint8_t* codes = block + index * 128;
    cell.half[0] = L::load_words(codes);
    cell.half[1] = L::load_words(codes + 64);
  }
  FEWBIT_INLINE typename L::Floats value(const E2m1Cell& cell, int i) {
    return L::e2m1(cell.half[i / 8], i % 8);
  }
};
template <class L>
struct Int4Cell : NibbleCell<L> {
  FEWBIT_INLINE void load(Int4Cell& cell, const std::uint8_t* block, std::int64_t index,
                          bool offset) {
    const std::uint8_t* codes = block + index * 128;
    const auto flip = L::same_words(offset ? 0x88888888U : 0U);
    cell.half[0] = L::flip(L::load_words(codes), flip);
    cell.half[1] = L::flip(L::load_words(codes + 64), flip);
  }
  FEWBIT_INLINE typename L::Floats value(const Int4Cell& cell, int i) {
    return L::int4(cell.half[i / 8], i % 8);
  }
};
// Codes and zero points both as 0 to 15.
template <class L>
struct ZeroInt4Cell : NibbleCell<L> {
  FEWBIT_INLINE void load(ZeroInt4Cell& cell, const std::uint8_t* block, std::int64_t index,
                          bool offset) {
    Int4Cell<L> flipped;
    Int4Cell<L>::load(flipped, block, index, !offset);
    cell.half[0] = flipped.half[0];
    cell.half[1] = flipped.half[1];
  }
  FEWBIT_INLINE typename L::Floats value_minus(const ZeroInt4Cell& cell, int i,
                                               const typename L::Floats& zero) {
    return L::uint4_minus(cell.half[i / 8], i % 8, zero);
  }
  FEWBIT_INLINE typename L::Floats zero(const BlockPlace& at, std::int64_t g, bool offset) {
    const auto stored = L::int8(at.zeros + g * 16, offset ? 0x80 : 0);
    return L::sub(stored, L::same(offset ? -128.0F : -8.0F));
  }
};
template <class L>
struct TernaryCell : CellBase<L, 64> {
  typename L::Words words;
  FEWBIT_INLINE void load(TernaryCell& cell, const std::uint8_t* block, std::int64_t index,
                          bool /*offset*/) {
    cell.words = L::load_words(block + index * 64);
  }
  FEWBIT_INLINE typename L::Floats value(const TernaryCell& cell, int i) {
    return L::ternary(L::right(cell.words, 2 * i));
  }
};
// A row's 48 bits in two words: codes 0 to 9 and two bits of code 10; its third bit and the rest.
template <class L>
struct Nf3Cell : CellBase<L, 96> {
  typename L::Words low, high;
  FEWBIT_INLINE void load(Nf3Cell& cell, const std::uint8_t* block, std::int64_t index,
                          bool /*offset*/) {
    cell.low = L::load_any_words(block + index * 96);
    cell.high = L::load_halves(block + index * 96 + 64);
  }
  FEWBIT_INLINE typename L::Floats value(const Nf3Cell& cell, int i) {
    if (i < 10) return L::nf3(L::right(cell.low, 3 * i));
    if (i > 10) return L::nf3(L::right(cell.high, 3 * i - 32));
    return L::nf3(L::either(L::right(cell.low, 30), L::left(cell.high, 2)));
  }
};
template <class L>
struct ByteCell : CellBase<L, 256> {
  const std::uint8_t* codes;
  bool offset;
};
template <class L>
struct Int8Cell : ByteCell<L> {
  FEWBIT_INLINE void load(Int8Cell& cell, const std::uint8_t* block, std::int64_t index,
                          bool offset) {
    cell.codes = block + index * 256;
    cell.offset = offset;
  }
  FEWBIT_INLINE typename L::Floats value(const Int8Cell& cell, int i) {
    return L::int8(cell.codes + i * 16, cell.offset ? 0x80 : 0);
  }
};
template <class L>
struct ZeroInt8Cell : Int8Cell<L> {
  FEWBIT_INLINE typename L::Floats value_minus(const ZeroInt8Cell& cell, int i,
                                               const typename L::Floats& zero) {
    return L::sub(Int8Cell<L>::value(cell, i), zero);
  }
  FEWBIT_INLINE typename L::Floats zero(const BlockPlace& at, std::int64_t g, bool offset) {
    return L::int8(at.zeros + g * 16, offset ? 0x80 : 0);
  }
};
template <class L>
struct E4m3Cell : ByteCell<L> {
  static constexpr bool raw = L::raw_e4m3;
  FEWBIT_INLINE void load(E4m3Cell& cell, const std::uint8_t* block, std::int64_t index,
                          bool /*offset*/) {
    cell.codes = block + index * 256;
  }
  FEWBIT_INLINE typename L::Floats value(const E4m3Cell& cell, int i) {
    if constexpr (raw) {
      return L::e4m3_raw(cell.codes + i * 16);
    } else {
      return L::e4m3(cell.codes + i * 16);
    }
  }
};

// Q4_K: weights are code * scale - offset, rounded once. Lane16Blocks has nothing but its blocks;
// layout/cpu_k_blocks.hpp tells where their parts lie.
template <class L>
struct Q4kCell : CellBase<L, 144> {
  struct Zero {
    typename L::Floats scale, minus_offset;
  };
  static constexpr bool own_scales = true;
  static constexpr std::int64_t run_bytes = 144 * 16;  // 256 k of 16 rows
  typename L::Words words[4];  // codes k = 4 j to 4 j + 3 in the low nibbles of bytes

  FEWBIT_INLINE void load(Q4kCell& cell, const std::uint8_t* block, std::int64_t index,
                          bool /*offset*/) {
    const auto at = static_cast<int>(index % 16);
    const std::uint8_t* codes = block + index / 16 * run_bytes + 256 + at / 4 * 512 + at % 2 * 256;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      cell.words[j] = L::right_by(L::load_any_words(codes + 64 * j), at / 2 % 2 * 4);
  }
  FEWBIT_INLINE typename L::Floats value_minus(const Q4kCell& cell, int i, const Zero& zero) {
    const auto code = L::uint4_minus(cell.words[i / 4], i % 4 * 2, L::zero());
    return L::fma(code, zero.scale, zero.minus_offset);
  }
  // The 6 bits of scale and minimum of group g of 32: of the first four the low ones of a byte
  // each, of the others four low bits in a third byte and two high ones above those of the first
  // four.
  FEWBIT_INLINE Zero zero(const BlockPlace& at, std::int64_t g, bool /*offset*/) {
    const std::uint8_t* run = at.codes + g / 8 * run_bytes;
    const auto scales = L::load_any_words(run + 64);
    const auto minima = L::load_any_words(run + 128);
    const int to = static_cast<int>(g % 4) * 8;
    auto scale = L::masked(L::right_by(scales, to), 63);
    auto minimum = L::masked(L::right_by(minima, to), 63);
    if (g % 8 >= 4) {
      const auto low = L::right_by(L::load_any_words(run + 192), to);
      scale = L::either(L::masked(low, 15), L::masked(L::right_by(scales, to + 2), 48));
      minimum =
          L::either(L::masked(L::right(low, 4), 15), L::masked(L::right_by(minima, to + 2), 48));
    }
    return {L::mul(L::f16(run), L::floats_of(scale)),
            L::sub(L::zero(), L::mul(L::f16(run + 32), L::floats_of(minimum)))};
  }
  FEWBIT_INLINE typename L::Floats scale(const std::uint8_t* /*block*/, std::int64_t /*g*/) {
    return L::same(1.0F);
  }
};

// Q6_K: weights are (code - 32) * (scale of 16 k * scale of the block).
template <class L>
struct Q6kCell : CellBase<L, 210> {
  static constexpr bool own_scales = true;
  static constexpr std::int64_t run_bytes = 210 * 16;  // 256 k of 16 rows
  typename L::Words words[4];                          // codes k = 4 j to 4 j + 3 in bytes

  FEWBIT_INLINE void load(Q6kCell& cell, const std::uint8_t* block, std::int64_t index,
                          bool /*offset*/) {
    const auto at = static_cast<int>(index % 16);
    const int quarter = at % 8 / 2;
    const std::uint8_t* run = block + index / 16 * run_bytes;
    const std::uint8_t* low = run + (at / 8 * 64 + quarter % 2 * 32 + at % 2 * 16) * 16;
    const std::uint8_t* high = run + (128 + at / 8 * 32 + at % 2 * 16) * 16;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto nibbles = L::right_by(L::load_any_words(low + 64 * j), quarter / 2 * 4);
      const auto pairs = L::right_by(L::load_any_words(high + 64 * j), quarter * 2);
      cell.words[j] =
          L::either(L::masked(nibbles, 0x0f0f0f0f), L::left(L::masked(pairs, 0x03030303), 4));
    }
  }
  FEWBIT_INLINE typename L::Floats value(const Q6kCell& cell, int i) {
    return L::uint6_minus(cell.words[i / 4], i % 4, L::same(32.0F));
  }
  FEWBIT_INLINE typename L::Floats scale(const std::uint8_t* block, std::int64_t g) {
    const std::uint8_t* run = block + g / 16 * run_bytes;
    return L::mul(L::int8(run + 192 * 16 + g % 16 * 16, 0), L::f16(run + 208 * 16));
  }
};
