// SPDX-License-Identifier: Apache-2.0
// Moving by blocks gives the bytes of the closed forms, at every ISA level of this machine.
#include "layout/element_mover.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "layout/awq_words.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/backward_executor.hpp"
#include "layout/column_major.hpp"
#include "layout/column_words.hpp"
#include "layout/cpu_int4_blocks.hpp"
#include "layout/cpu_lane16.hpp"
#include "layout/f4_transposed.hpp"
#include "layout/gptq_words.hpp"
#include "layout/map_layouts.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_act8_4bit.hpp"
#include "layout/marlin_act8_8bit.hpp"
#include "layout/marlin_scales.hpp"
#include "layout/marlin_zeros.hpp"
#include "layout/pack.hpp"
#include "layout/row_major.hpp"
#include "layout/scale_grid.hpp"
#include "layout/strip_rows.hpp"
#include "layout/swizzle_128x4.hpp"

namespace fewbit {
namespace {

using ::fewbit::testing::BackwardExecutor;

constexpr std::byte untouched{0xa5};

std::vector<std::byte> random_bytes(std::int64_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<IsaLevel> levels_of_this_machine() {
  std::vector<IsaLevel> levels;
  const auto machine = detect_cpu();
  for (const IsaLevel level : {IsaLevel::generic, IsaLevel::avx2, IsaLevel::avx512}) {
    if (machine && level <= best_isa(machine->cpu)) levels.push_back(level);
  }
  return levels;
}

template <class From_, class To_, std::int64_t block_n, std::int64_t block_k>
struct Move {
  using From = From_;
  using To = To_;
  static constexpr Dims block{.n = block_n, .k = block_k};
  static bool accepts(Dims d) { return From::accepts(d) && To::accepts(d); }
};

template <class T>
class ElementMoverTest : public ::testing::Test {};

using Moves = ::testing::Types<
    Move<RowMajor<4>, B12xPacked, 64, 128>, Move<GptqWords<4>, B12xPacked, 64, 128>,
    Move<AwqWords<4>, B12xPacked, 256, 32>, Move<GptqWords<4>, MarlinAct8Of4Bit, 64, 128>,
    Move<AwqWords<4>, MarlinAct8Of4Bit, 128, 64>, Move<GptqWords<8>, Marlin8Bit, 64, 64>,
    Move<AwqWords<8>, Marlin8Bit, 128, 32>, Move<GptqWords<8>, MarlinAct8Of8Bit, 64, 64>,
    Move<AwqWords<8>, MarlinAct8Of8Bit, 64, 64>, Move<GptqWords<4>, RowMajor<4>, 64, 128>,
    Move<GptqWords<4>, RowMajor<4>, 32, 256>, Move<RowMajor<4>, GptqWords<4>, 64, 128>,
    Move<AwqWords<4>, RowMajor<4>, 64, 128>, Move<GptqWords<4>, CpuInt4Blocks<32>, 64, 128>,
    Move<AwqWords<4>, CpuInt4Blocks<128>, 256, 32>, Move<RowMajor<4>, CpuF4Lane16, 16, 512>,
    Move<RowMajor<8>, CpuF4Lane16Scales, 16, 256>, Move<RowMajor<8>, CpuByteLane16, 16, 256>,
    Move<RowMajor<16>, CpuLane16Groups<16>, 16, 128>, Move<RowMajor<4>, F4Transposed<16>, 64, 128>,
    Move<RowMajor<8>, ColumnMajor<8>, 64, 64>, Move<ColumnMajor<16>, RowMajor<16>, 64, 32>,
    Move<RowMajor<8>, GroupedByteScales, 64, 64>, Move<RowMajor<8>, SingleByteScales, 64, 64>,
    Move<Swizzle128x4<8>, GroupedByteScales, 128, 32>, Move<RowMajor<8>, Swizzle128x4<8>, 128, 32>,
    Move<RowMajor<16>, Swizzle128x4<16>, 128, 16>,
    Move<ColumnMajor<16>, MarlinScales<ScaleOrder::grouped>, 64, 32>,
    Move<ColumnMajor<16>, MarlinScales<ScaleOrder::single>, 32, 64>,
    Move<ColumnWords<4>, MarlinZeros<4, MarlinWordOrder::interleaved>, 64, 128>,
    Move<AwqWords<8>, MarlinZeros<8, MarlinWordOrder::plain>, 64, 64>,
    Move<B12xPacked, RowMajor<4>, 64, 128>, Move<Marlin8Bit, RowMajor<8>, 64, 64>,
    Move<RowMajor<2>, RowMajor<2>, 16, 64>>;
TYPED_TEST_SUITE(ElementMoverTest, Moves);

template <Layout From, Layout To>
std::vector<std::byte> by_closed_form(Dims d, std::span<const std::byte> source) {
  std::vector<std::byte> out(static_cast<std::size_t>(To::bytes(d)), untouched);
  pack<To>(
      d,
      [&](std::int64_t n, std::int64_t k) {
        return read_bits<From::bits>(source, From::place(d, n, k));
      },
      out);
  return out;
}

// Random sizes, the smallest and ragged ones among them; thousands for small tiles.
TYPED_TEST(ElementMoverTest, GivesTheBytesOfTheClosedForms) {
  using From = typename TypeParam::From;
  using To = typename TypeParam::To;
  std::mt19937_64 random(5);
  const auto extent = [&] {
    constexpr std::int64_t steps[] = {1, 2, 8, 16, 32, 64, 128};
    return steps[random() % 7] * static_cast<std::int64_t>(1 + random() % 9);
  };
  BackwardExecutor executor(3);
  std::int64_t elements = 0;
  std::int64_t by_blocks = 0;
  while (elements < 4'000'000) {
    const Dims d{.n = extent(), .k = extent()};
    if (!TypeParam::accepts(d) || d.n * d.k > 200'000) continue;
    elements += d.n * d.k;
    const auto source = random_bytes(From::bytes(d), random);
    const auto expected = by_closed_form<From, To>(d, source);
    for (const IsaLevel isa : levels_of_this_machine()) {
      const ElementMover mover(map_layouts<From, To>(d, TypeParam::block), isa);
      std::vector<std::byte> out(expected.size(), untouched);
      move_elements(mover, {}, source, out, executor);
      ASSERT_EQ(out, expected) << d.n << " x " << d.k << " " << isa_name(isa);
      by_blocks += mover.elements_by_blocks();
    }
  }
  // Not by the element-wise way, which is right anyhow.
  EXPECT_GT(by_blocks, elements * std::ssize(levels_of_this_machine()) / 2);
}

// A table is applied to every element, by blocks and at edges.
TEST(ElementMoverTableTest, EveryElementBecomesItsEntry) {
  std::array<std::uint8_t, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::uint8_t>(i * 167 + 3);
  std::array<std::uint8_t, 16> nibbles{};
  for (std::size_t i = 0; i < nibbles.size(); ++i) nibbles[i] = (i * 7 + 3) & 15U;
  std::mt19937_64 random(6);
  constexpr Dims d{.n = 164, .k = 136};
  const auto source = random_bytes(d.n * d.k, random);
  for (const IsaLevel isa : levels_of_this_machine()) {
    ElementMap bytes = map_layouts<RowMajor<8>, ColumnMajor<8>>(d, {.n = 64, .k = 64});
    bytes.table = table.data();
    std::vector<std::byte> out(source.size());
    ElementMover(bytes, isa).run_all(source.data(), out.data());
    ElementMap halves = map_layouts<RowMajor<4>, GptqWords<4>>(d, {.n = 64, .k = 64});
    halves.table = nibbles.data();
    std::vector<std::byte> half_out(source.size() / 2);
    ElementMover(halves, isa).run_all(source.data(), half_out.data());
    for (std::int64_t n = 0; n < d.n; ++n) {
      for (std::int64_t k = 0; k < d.k; ++k) {
        ASSERT_EQ(read_bits<8>(out, ColumnMajor<8>::place(d, n, k)),
                  table[read_bits<8>(source, RowMajor<8>::place(d, n, k))]);
        ASSERT_EQ(read_bits<4>(half_out, GptqWords<4>::place(d, n, k)),
                  nibbles[read_bits<4>(source, RowMajor<4>::place(d, n, k))]);
      }
    }
  }
}

// Any start, any rotation of rows, parts padded for themselves; nothing else is written.
TEST(ElementMoverRangesTest, RotatedAndPaddedRowsComeFromTheirs) {
  std::mt19937_64 random(7);
  constexpr Dims d{.n = 192, .k = 80};
  const auto source = random_bytes(RowMajor<4>::bytes(d), random);
  for (const IsaLevel isa : levels_of_this_machine()) {
    for (const std::int64_t shift : {0, 1, 32, 96, 100}) {
      const RowRotation rows{.rows = d.n, .shift = shift};
      const ElementMover mover(map_rotated<RowMajor<4>, B12xPacked>(rows, d, {.n = 64, .k = 128}),
                               isa);
      std::vector<std::byte> out(source.size());
      mover.run_all(source.data(), out.data());
      for (std::int64_t n = 0; n < d.n; ++n) {
        for (std::int64_t k = 0; k < d.k; ++k) {
          ASSERT_EQ(read_bits<4>(out, B12xPacked::place(d, n, k)),
                    read_bits<4>(source, RowMajor<4>::place(d, rows.source(n), k)))
              << shift << " " << n << " " << k;
        }
      }
    }
    const PaddedMatrix padded{
        .from = {.n = 80, .k = 72}, .to = {.n = 128, .k = 96}, .parts_n = 2, .order = {}};
    std::vector<std::byte> out(static_cast<std::size_t>(B12xPacked::bytes(padded.to)), untouched);
    ElementMover(map_padded<GptqWords<4>, B12xPacked>(padded, {.n = 64, .k = 128}), isa)
        .run_all(source.data(), out.data());
    for (std::int64_t n = 0; n < padded.to.n; ++n) {
      for (std::int64_t k = 0; k < padded.to.k; ++k) {
        const Element e = padded.source(n, k);
        const auto at = B12xPacked::place(padded.to, n, k);
        const auto want = e.n < 0
                              ? (at.bit == 0 ? 0x5U : 0xaU)
                              : read_bits<4>(source, GptqWords<4>::place(padded.from, e.n, e.k));
        ASSERT_EQ(read_bits<4>(out, at), want) << n << " " << k;
      }
    }
  }
}

// Rows k of a source in an order, some of them not at all, and parts that are padded.
template <Layout From, Layout To>
void expect_rows_in_order(const PaddedMatrix& sizes, std::mt19937_64& random) {
  PaddedMatrix matrix = sizes;
  std::vector<std::int32_t> order(static_cast<std::size_t>(sizes.from.k + 5));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  order.resize(static_cast<std::size_t>(sizes.from.k));
  matrix.order = order;
  const Dims stored{.n = sizes.from.n, .k = sizes.from.k + 5};
  const std::int64_t row_bytes = From::bytes({.n = stored.n, .k = 1});
  const auto starts = row_starts(order, row_bytes);
  const auto source = random_bytes(From::bytes(stored), random);
  std::vector<std::byte> expected(static_cast<std::size_t>(To::bytes(sizes.to)), untouched);
  for (std::int64_t n = 0; n < sizes.to.n; ++n) {
    for (std::int64_t k = 0; k < sizes.to.k; ++k) {
      const Element e = matrix.source(n, k);
      if (e.n < 0) continue;
      const auto code = read_bits<From::bits>(source, From::place(stored, e.n, e.k));
      write_bits<To::bits>(expected, To::place(sizes.to, n, k), code);
    }
  }
  for (const IsaLevel isa : levels_of_this_machine()) {
    std::vector<std::byte> out(expected.size(), untouched);
    const auto map = map_ordered<From, To>(matrix, starts, row_bytes, tile_row<To>());
    ElementMover(map, isa).run_all(source.data(), out.data());
    ASSERT_EQ(out, expected) << sizes.from.n << " x " << sizes.from.k << " " << isa_name(isa);
  }
}

TEST(ElementMoverOrderTest, RowsComeInTheirOrder) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 60; ++i) {
    const auto parts = static_cast<std::int64_t>(1 + random() % 2);
    const auto extent = [&](unsigned most) {
      return static_cast<std::int64_t>(1 + random() % most);
    };
    const Dims part{.n = i < 3 ? 8 << i : 8 * extent(60), .k = i < 3 ? 1 + i : extent(160)};
    PaddedMatrix sizes{.from = {.n = parts * part.n, .k = part.k},
                       .to = {.n = parts * ((part.n + 63) / 64 * 64), .k = (part.k + 15) / 16 * 16},
                       .parts_n = parts,
                       .order = {}};
    expect_rows_in_order<AwqWords<4>, B12xPacked>(sizes, random);
    expect_rows_in_order<AwqWords<8>, Marlin8Bit>(sizes, random);
    const std::int64_t strip = std::int64_t{16} << random() % 6;
    sizes = {.from = {.n = strip, .k = part.k},
             .to = {.n = strip < 64 ? 64 : strip, .k = sizes.to.k},
             .parts_n = 1,
             .order = {}};
    expect_rows_in_order<StripRows<4>, B12xPacked>(sizes, random);
    expect_rows_in_order<StripRows<8>, Marlin8Bit>(sizes, random);
  }
}

// Lines are read and written at any address, and nothing beside them.
TEST(ElementMoverAlignmentTest, NeedsNoneAndWritesNothingElse) {
  std::mt19937_64 random(8);
  constexpr Dims d{.n = 128, .k = 144};
  const auto source = random_bytes(RowMajor<4>::bytes(d), random);
  const auto expected = by_closed_form<RowMajor<4>, B12xPacked>(d, source);
  for (const IsaLevel isa : levels_of_this_machine()) {
    const ElementMover mover(map_layouts<RowMajor<4>, B12xPacked>(d, {.n = 64, .k = 128}), isa);
    for (const std::ptrdiff_t offset : {1, 3, 8, 33}) {
      std::vector<std::byte> moved(static_cast<std::size_t>(offset) + source.size());
      std::ranges::copy(source, moved.begin() + offset);
      std::vector<std::byte> out(moved.size() + 64, untouched);
      mover.run_all(moved.data() + offset, out.data() + offset);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin() + offset));
      std::fill_n(out.begin() + offset, expected.size(), untouched);
      EXPECT_EQ(std::ranges::count(out, untouched), std::ssize(out));
    }
  }
}

}  // namespace
}  // namespace fewbit
