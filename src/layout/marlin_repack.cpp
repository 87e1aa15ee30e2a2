// SPDX-License-Identifier: Apache-2.0
#include "layout/marlin_repack.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/checked.hpp"
#include "layout/awq_words.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/column_major.hpp"
#include "layout/column_words.hpp"
#include "layout/element_mover.hpp"
#include "layout/gptq_words.hpp"
#include "layout/map_layouts.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_act8_4bit.hpp"
#include "layout/marlin_act8_8bit.hpp"
#include "layout/marlin_codes.hpp"
#include "layout/marlin_scales.hpp"
#include "layout/marlin_signed_chunks.hpp"
#include "layout/marlin_zeros.hpp"
#include "layout/ordered_blocks.hpp"
#include "layout/ordered_strips.hpp"
#include "layout/pack.hpp"
#include "layout/pack_fast_zeros.hpp"

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

bool is_act8(const MarlinCodes& codes) { return codes.activation != MarlinActivation::bits16; }

// code: of padding, 4 bits.
void fill_padding(const PaddedMatrix& matrix, unsigned code, std::span<std::byte> out) {
  if (matrix.to != matrix.from) std::ranges::fill(out, static_cast<std::byte>(code * 0x11U));
}

// table: of the 16 codes, what becomes of each, those of padding (0) too.
template <Layout From, Layout To>
void move(const PaddedMatrix& matrix, std::span<const std::byte> in, std::span<std::byte> out,
          Dims block = {.n = 64, .k = 512 / From::bits}, const std::uint8_t* table = nullptr) {
  fill_padding(matrix, table == nullptr ? 0 : table[0], out);
  ElementMap map = map_padded<From, To>(matrix, block);
  map.table = table;
  ElementMover(std::move(map), packing_isa()).run_all(in.data(), out.data());
}

// transform(code, element): of the stored element, or {-1, -1} of padding, whose code is 0.
template <Layout From, Layout To, class Transform>
void move_each(const PaddedMatrix& matrix, std::span<const std::byte> in, std::span<std::byte> out,
               const Transform& transform) {
  static_assert(From::bits == To::bits);
  pack<To>(
      matrix.to,
      [&](std::int64_t n, std::int64_t k) {
        const Element e = matrix.source(n, k);
        const std::uint64_t code =
            e.n < 0 ? 0 : read_bits<From::bits>(in, From::place(matrix.from, e.n, e.k));
        return transform(code, e);
      },
      out);
}

std::uint64_t unchanged(std::uint64_t code, Element /*element*/) { return code; }

template <WordSource source, Layout From, Layout To>
void move_codes_to(const PaddedMatrix& matrix, std::span<const std::byte> words,
                   std::span<std::byte> tiles) {
  if (matrix.order.empty()) return move<From, To>(matrix, words, tiles, tile_row<To>());
  fill_padding(matrix, 0, tiles);
  if constexpr (source == WordSource::awq) {
    const std::int64_t row_bytes = From::bytes({.n = matrix.from.n, .k = 1});
    const auto starts = row_starts(matrix.order, row_bytes);
    ElementMover(map_ordered<From, To>(matrix, starts, row_bytes, tile_row<To>()), packing_isa())
        .run_all(words.data(), tiles.data());
  } else if (OrderedStrips<From, To>::accepts(matrix)) {
    OrderedStrips<From, To>(matrix, words, tiles).move();
  } else {
    move_each<From, To>(matrix, words, tiles, unchanged);
  }
}

template <WordSource source, Layout From>
void move_codes(bool act8, const PaddedMatrix& matrix, std::span<const std::byte> words,
                std::span<std::byte> tiles) {
  if constexpr (From::bits == 4) {
    act8 ? move_codes_to<source, From, MarlinAct8Of4Bit>(matrix, words, tiles)
         : move_codes_to<source, From, B12xPacked>(matrix, words, tiles);
  } else {
    act8 ? move_codes_to<source, From, MarlinAct8Of8Bit>(matrix, words, tiles)
         : move_codes_to<source, From, Marlin8Bit>(matrix, words, tiles);
  }
}

template <Layout Words, Layout ZeroWords>
std::int64_t move_fp8(const MarlinFp8Job& job, const PaddedMatrix& matrix,
                      std::span<const std::byte> words, std::span<std::byte> tiles) {
  const MarlinFp8Zeros& zeros = job.zeros;
  if (zeros.words.empty()) {  // every code is -8 to 7 from 8, and both rules agree
    std::array<std::uint8_t, 16> table{};
    for (unsigned code = 0; code < 16; ++code) {
      table[code] = static_cast<std::uint8_t>(marlin_fp8_code_as_vllm(code, marlin_middle));
    }
    move<Words, MarlinAct8Of4Bit>(matrix, words, tiles, tile_row<MarlinAct8Of4Bit>(), table.data());
    return 0;
  }
  if (matrix.to != matrix.from) {  // padding is code 0 with zero point 0
    const bool exact = job.rules == MarlinRules::exact;
    fill_padding(matrix, exact ? *marlin_fp8_code(0, 0) : marlin_fp8_code_as_vllm(0, 0), tiles);
  }
  return SignedChunks<Words, ZeroWords>(job, matrix, words).move(tiles);
}

template <Layout From>
void move_zeros(bool act8, const PaddedMatrix& groups, std::span<const std::byte> words,
                std::span<std::byte> out) {
  constexpr int bits = From::bits;
  act8 ? move<From, MarlinZeros<bits, MarlinWordOrder::plain>>(groups, words, out)
       : move<From, MarlinZeros<bits, MarlinWordOrder::interleaved>>(groups, words, out);
}

Result<void> check_order(const std::string& name, const PaddedMatrix& matrix) {
  std::vector<bool> seen(static_cast<std::size_t>(matrix.to.k));
  if (matrix.order.size() != seen.size()) {
    return bad(name, "order of " + std::to_string(matrix.order.size()) + " columns, expected " +
                         std::to_string(seen.size()));
  }
  for (const std::int32_t k : matrix.order) {
    if (k < 0 || k >= matrix.from.k || seen[static_cast<std::size_t>(k)]) {
      return bad(name, "order names column " + std::to_string(k) + " twice or outside 0 to " +
                           std::to_string(matrix.from.k - 1));
    }
    seen[static_cast<std::size_t>(k)] = true;
  }
  return {};
}

template <Layout To>
void move_rows(bool signed_codes, std::span<const CodeRows> parts, Dims to,
               std::span<std::byte> tiles) {
  std::int64_t elements = 0;
  for (const CodeRows& part : parts) elements += part.dims.n * part.dims.k;
  if (elements != to.n * to.k) std::ranges::fill(tiles, std::byte{0});
  for (const CodeRows& part : parts) move_code_rows<To>(part, signed_codes, to, tiles);
}

std::string size_text(Dims d) { return std::to_string(d.n) + " x " + std::to_string(d.k); }

}  // namespace

Result<void> check_marlin_codes(const std::string& name, const MarlinCodes& codes,
                                const PaddedMatrix& matrix) {
  if (codes.bits != 4 && codes.bits != 8) {
    return bad(name, std::to_string(codes.bits) + " bits, expected 4 or 8");
  }
  const std::int64_t tile_k = is_act8(codes) ? 32 : 16;
  const Dims to = matrix.to;
  if (to.n <= 0 || to.k <= 0 || to.n % 64 != 0 || to.k % tile_k != 0) {
    return bad(name, "n x k is " + size_text(to) + ", expected multiples of 64 and " +
                         std::to_string(tile_k));
  }
  const std::int64_t per_word = 32 / codes.bits;
  const std::int64_t along =
      codes.source == WordSource::gptq ? matrix.from.k : matrix.from.n / matrix.parts_n;
  if (along % per_word != 0) {
    return bad(name, "n x k is " + size_text(matrix.from) + ", expected whole words of " +
                         std::to_string(per_word) + " codes");
  }
  if (matrix.order.empty()) return {};
  if (is_act8(codes)) {
    return Error{ErrorCode::unsupported, "8-bit activations with an order of columns", name};
  }
  return check_order(name, matrix);
}

void marlin_repack(const MarlinCodes& codes, const PaddedMatrix& matrix,
                   std::span<const std::byte> words, std::span<std::byte> tiles) {
  const bool act8 = is_act8(codes);
  if (codes.source == WordSource::gptq) {
    codes.bits == 4 ? move_codes<WordSource::gptq, GptqWords<4>>(act8, matrix, words, tiles)
                    : move_codes<WordSource::gptq, GptqWords<8>>(act8, matrix, words, tiles);
  } else {
    codes.bits == 4 ? move_codes<WordSource::awq, AwqWords<4>>(act8, matrix, words, tiles)
                    : move_codes<WordSource::awq, AwqWords<8>>(act8, matrix, words, tiles);
  }
}

void marlin_repack_rows(int bits, bool signed_codes, std::span<const CodeRows> parts, Dims to,
                        std::span<std::byte> tiles) {
  bits == 4 ? move_rows<B12xPacked>(signed_codes, parts, to, tiles)
            : move_rows<Marlin8Bit>(signed_codes, parts, to, tiles);
}

std::int64_t marlin_repack_fp8(const MarlinFp8Job& job, const PaddedMatrix& matrix,
                               std::span<const std::byte> words, std::span<std::byte> tiles) {
  return job.source == WordSource::gptq
             ? move_fp8<GptqWords<4>, ColumnWords<4>>(job, matrix, words, tiles)
             : move_fp8<AwqWords<4>, AwqWords<4>>(job, matrix, words, tiles);
}

void marlin_zero_points(const MarlinCodes& codes, const PaddedMatrix& groups,
                        std::span<const std::byte> words, std::span<std::byte> out) {
  const bool act8 = is_act8(codes);
  if (codes.bits == 4 && !act8 && groups.from == groups.to) {
    const std::int64_t blocks = groups.to.k * (groups.to.n / 64);
    pack_zeros(packing_isa())(
        {.source = codes.source, .words = words.data(), .blocks = blocks, .out = out.data()});
    return;
  }
  if (codes.source == WordSource::gptq) {
    codes.bits == 4 ? move_zeros<ColumnWords<4>>(act8, groups, words, out)
                    : move_zeros<ColumnWords<8>>(act8, groups, words, out);
  } else {
    codes.bits == 4 ? move_zeros<AwqWords<4>>(act8, groups, words, out)
                    : move_zeros<AwqWords<8>>(act8, groups, words, out);
  }
}

ScaleOrder marlin_scale_order(std::int64_t k, std::int64_t group_size,
                              MarlinActivation activation) {
  return activation == MarlinActivation::bits16 ? scale_order(k, group_size) : ScaleOrder::single;
}

void marlin_scales(ScaleOrder order, const PaddedMatrix& groups, std::span<const std::byte> scales,
                   std::span<std::byte> out) {
  order == ScaleOrder::grouped
      ? move<ColumnMajor<16>, MarlinScales<ScaleOrder::grouped>>(groups, scales, out)
      : move<ColumnMajor<16>, MarlinScales<ScaleOrder::single>>(groups, scales, out);
}

std::int64_t marlin_padded_intermediate(std::int64_t intermediate_size, std::int64_t group_size) {
  const std::int64_t group = std::max<std::int64_t>(group_size, 1);
  return round_up(intermediate_size, std::lcm(std::int64_t{64}, group));
}

}  // namespace fewbit
