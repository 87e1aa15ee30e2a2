// SPDX-License-Identifier: Apache-2.0
#include "layout/code_rows.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "layout/b12x_packed.hpp"
#include "layout/gptq_words.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_repack.hpp"
#include "layout/pack.hpp"

namespace fewbit {
namespace {

std::vector<std::byte> random_bytes(std::int64_t count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(count));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Two parts of `stored`, each at the front of its half of `to`; what no part has is 0.
template <Layout To>
void expect_parts(Dims stored, Dims to, bool signed_codes) {
  using From = RowMajor<To::bits>;
  const auto gate = random_bytes(From::bytes(stored));
  const auto up = random_bytes(From::bytes(stored) + 1);
  const CodeRows parts[] = {
      {.codes = gate, .dims = stored},
      {.codes = std::span(up).first(gate.size()), .dims = stored, .first_n = to.n / 2}};
  std::vector<std::byte> tiles(static_cast<std::size_t>(To::bytes(to)), std::byte{0x5a});
  marlin_repack_rows(To::bits, signed_codes, parts, to, tiles);
  const std::uint64_t middle = signed_codes ? std::uint64_t{1} << (To::bits - 1) : 0;
  for (std::int64_t n = 0; n < to.n; ++n) {
    const std::int64_t row = n % (to.n / 2);
    for (std::int64_t k = 0; k < to.k; ++k) {
      std::uint64_t code = 0;
      if (row < stored.n && k < stored.k) {
        const auto bytes = n < to.n / 2 ? parts[0].codes : parts[1].codes;
        code = read_bits<To::bits>(bytes, From::place(stored, row, k)) ^ middle;
      }
      ASSERT_EQ(read_bits<To::bits>(tiles, To::place(to, n, k)), code) << n << " " << k;
    }
  }
}

TEST(CodeRowsTest, PartsLieInTheirHalvesOfMarlinsTiles) {
  for (const bool signed_codes : {false, true}) {
    expect_parts<B12xPacked>({.n = 128, .k = 256}, {.n = 256, .k = 256}, signed_codes);
    expect_parts<B12xPacked>({.n = 352, .k = 80}, {.n = 768, .k = 80}, signed_codes);
    expect_parts<B12xPacked>({.n = 40, .k = 48}, {.n = 128, .k = 64}, signed_codes);
    expect_parts<Marlin8Bit>({.n = 64, .k = 144}, {.n = 128, .k = 144}, signed_codes);
    expect_parts<Marlin8Bit>({.n = 72, .k = 32}, {.n = 256, .k = 64}, signed_codes);
  }
}

// Parts that begin within a block, as those of an odd number of rows do.
TEST(CodeRowsTest, WordsOfPartsAreTheWordsOfTheWhole) {
  constexpr Dims part{.n = 37, .k = 264};
  constexpr Dims all{.n = 74, .k = 264};
  const auto rows = random_bytes(RowMajor<4>::bytes(all));
  const auto half = rows.size() / 2;
  std::vector<std::byte> words(static_cast<std::size_t>(GptqWords<4>::bytes(all)));
  move_code_rows<GptqWords<4>>({.codes = std::span(rows).first(half), .dims = part}, false, all,
                               words);
  move_code_rows<GptqWords<4>>(
      {.codes = std::span(rows).subspan(half), .dims = part, .first_n = part.n}, false, all, words);
  std::vector<std::byte> expected(words.size());
  pack<GptqWords<4>>(
      all,
      [&](std::int64_t n, std::int64_t k) {
        return read_bits<4>(rows, RowMajor<4>::place(all, n, k));
      },
      expected);
  EXPECT_EQ(words, expected);
}

}  // namespace
}  // namespace fewbit
