// SPDX-License-Identifier: Apache-2.0
// What every layout must be: instantiated for all of them, some in each test file.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "layout/pack.hpp"
#include "layout/place.hpp"

namespace fewbit {

template <class L>
class LayoutTest : public ::testing::Test {
 public:
  // Small, odd, one tile, several tiles each way, padded both ways; those that the layout accepts.
  static std::vector<Dims> sizes() {
    std::vector<Dims> accepted;
    for (const std::int64_t n : {1, 7, 16, 32, 64, 96, 128, 130, 192, 256, 320, 384}) {
      for (const std::int64_t k :
           {1, 2, 4, 5, 6, 8, 16, 32, 48, 64, 96, 128, 144, 160, 192, 224, 256, 384, 512}) {
        if (n * k <= 100'000 && L::accepts({.n = n, .k = k})) accepted.push_back({.n = n, .k = k});
      }
    }
    return accepted;
  }

  // The smallest size that the layout accepts, in powers of two.
  static Dims tile() {
    Dims smallest{.n = 512, .k = 512};
    for (std::int64_t n = 1; n <= 512; n *= 2) {
      for (std::int64_t k = 1; k <= 512; k *= 2) {
        if (n * k < smallest.n * smallest.k && L::accepts({.n = n, .k = k})) smallest = {n, k};
      }
    }
    return smallest;
  }
};

TYPED_TEST_SUITE_P(LayoutTest);

TYPED_TEST_P(LayoutTest, IsALayoutAndAcceptsSomeOfTheTestedSizes) {
  static_assert(Layout<TypeParam>);
  EXPECT_GE(this->sizes().size(), 12U);
}

// No two elements share a place, none ends behind the buffer, and all bits but the spare ones hold
// one.
TYPED_TEST_P(LayoutTest, GivesEveryElementItsOwnPlace) {
  for (const Dims d : this->sizes()) {
    std::set<Place> taken;
    for (std::int64_t n = 0; n < d.n; ++n) {
      for (std::int64_t k = 0; k < d.k; ++k) {
        const Place p = TypeParam::place(d, n, k);
        ASSERT_TRUE(taken.insert(p).second) << "n " << n << " k " << k;
        ASSERT_GE(p.byte, 0);
        ASSERT_LE(p.byte * 8 + p.bit + TypeParam::bits, TypeParam::bytes(d) * 8);
        ASSERT_EQ((p.byte * 8 + p.bit) % TypeParam::bits, 0) << "n " << n << " k " << k;
      }
    }
    EXPECT_EQ(std::int64_t(taken.size()) * TypeParam::bits + TypeParam::spare_bits(d),
              TypeParam::bytes(d) * 8)
        << d.n << " x " << d.k;
  }
}

TYPED_TEST_P(LayoutTest, InverseFindsTheElementOfEveryPlace) {
  for (const Dims d : this->sizes()) {
    std::int64_t spare_bits = 0;
    for (std::int64_t bit = 0; bit < TypeParam::bytes(d) * 8; bit += TypeParam::bits) {
      const Place p{.byte = bit / 8, .bit = static_cast<int>(bit % 8)};
      const Element e = TypeParam::inverse(d, p);
      if (!contains(d, e)) {
        spare_bits += TypeParam::bits;
        continue;
      }
      ASSERT_EQ(TypeParam::place(d, e.n, e.k), p) << d.n << " x " << d.k << " byte " << p.byte;
    }
    EXPECT_EQ(spare_bits, TypeParam::spare_bits(d)) << d.n << " x " << d.k;
  }
}

TYPED_TEST_P(LayoutTest, UnpackGivesBackWhatPackTookAndLeavesSpareBitsAlone) {
  constexpr std::byte untouched{0xa5};
  for (const Dims d : this->sizes()) {
    std::mt19937_64 random(static_cast<std::uint64_t>(d.n * 1000 + d.k));
    std::vector<std::uint64_t> codes(static_cast<std::size_t>(d.n * d.k));
    constexpr std::uint64_t mask =
        TypeParam::bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << TypeParam::bits) - 1;
    for (auto& code : codes) code = random() & mask;

    const auto bytes = static_cast<std::size_t>(TypeParam::bytes(d));
    std::vector<std::byte> buffer(bytes + 8, untouched);
    pack<TypeParam>(
        d,
        [&](std::int64_t n, std::int64_t k) {
          return codes[static_cast<std::size_t>(n * d.k + k)];
        },
        std::span(buffer).first(bytes));
    for (std::size_t i = bytes; i < buffer.size(); ++i) ASSERT_EQ(buffer[i], untouched);

    std::size_t next = 0;
    unpack<TypeParam>(d, std::span<const std::byte>(buffer),
                      [&](std::int64_t n, std::int64_t k, std::uint64_t code) {
                        ASSERT_EQ(code, codes[next]) << "n " << n << " k " << k;
                        ++next;
                      });
    EXPECT_EQ(next, codes.size());
    for (std::size_t bit = 0; bit < bytes * 8; bit += TypeParam::bits) {
      const Place p{.byte = std::int64_t(bit / 8), .bit = static_cast<int>(bit % 8)};
      if (contains(d, TypeParam::inverse(d, p))) continue;
      ASSERT_EQ(read_bits<TypeParam::bits>(buffer, p),
                read_bits<TypeParam::bits>(std::vector<std::byte>(8, untouched), Place{0, p.bit}));
    }
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::int64_t most_random_elements = 300'000;
#else
inline constexpr std::int64_t most_random_elements = 6'000'000;
#endif

// Sizes that no list names: the same three properties. Most are a few tiles, so that there are
// thousands; one in 64 is of any size.
TYPED_TEST_P(LayoutTest, HoldsForRandomSizes) {
  constexpr int most_sizes = 2000;
  std::mt19937_64 random(11);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(1 + random() % static_cast<std::uint64_t>(most));
  };
  const auto any = [&] {
    constexpr std::int64_t steps[] = {1, 2, 8, 16, 32, 64, 128};
    return steps[random() % 7] * up_to(6);
  };
  const auto most_tiles = [](std::int64_t tile) { return std::max<std::int64_t>(24 / tile, 2); };
  const auto tiles = [&](std::int64_t tile) { return tile * up_to(most_tiles(tile)); };
  const Dims tile = this->tile();
  std::int64_t elements = 0;
  int accepted = 0;
  while (elements < most_random_elements && accepted < most_sizes) {
    const bool large = random() % 64 == 0;
    const Dims d =
        large ? Dims{.n = any(), .k = any()} : Dims{.n = tiles(tile.n), .k = tiles(tile.k)};
    if (!TypeParam::accepts(d) || d.n * d.k > 100'000) continue;
    elements += d.n * d.k;
    ++accepted;
    std::vector<bool> taken(static_cast<std::size_t>(TypeParam::bytes(d) * 8));
    std::vector<std::byte> buffer(static_cast<std::size_t>(TypeParam::bytes(d)));
    const auto code = [](std::int64_t n, std::int64_t k) {
      constexpr std::uint64_t mask = (std::uint64_t{2} << (TypeParam::bits - 1)) - 1;
      return static_cast<std::uint64_t>(n * 7919 + k * 31 + n * k) & mask;
    };
    pack<TypeParam>(d, code, buffer);
    unpack<TypeParam>(d, std::span<const std::byte>(buffer),
                      [&](std::int64_t n, std::int64_t k, std::uint64_t got) {
                        const Place p = TypeParam::place(d, n, k);
                        const auto bit = static_cast<std::size_t>(p.byte * 8 + p.bit);
                        ASSERT_FALSE(taken[bit]) << d.n << " x " << d.k << " at " << n << " " << k;
                        taken[bit] = true;
                        ASSERT_EQ(got, code(n, k)) << d.n << " x " << d.k;
                        ASSERT_EQ(TypeParam::inverse(d, p), (Element{.n = n, .k = k}));
                      });
    ASSERT_FALSE(this->HasFatalFailure());
  }
  // All of them for tiles of up to 512 elements, hundreds for those of 4096; a quarter of the
  // elements, and 600 a size, are for those that are drawn larger.
  const std::int64_t mean =
      tile.n * (most_tiles(tile.n) + 1) * tile.k * (most_tiles(tile.k) + 1) / 4;
  const std::int64_t each = 5 * mean / 4 + 600;
  EXPECT_GE(accepted, std::min<std::int64_t>(most_sizes, most_random_elements / each));
}

// Offsets past 2^31 bytes: no product is cut to 32 bits.
TYPED_TEST_P(LayoutTest, KeepsLargeOffsetsApart) {
  const Dims d{.n = std::int64_t{1} << 18, .k = std::int64_t{3} << 18};
  ASSERT_TRUE(TypeParam::accepts(d));
  std::set<Place> taken;
  for (const std::int64_t n : {std::int64_t{0}, d.n / 2 + 3, d.n - 1}) {
    for (const std::int64_t k : {std::int64_t{0}, d.k / 2 + 5, d.k - 1}) {
      const Place p = TypeParam::place(d, n, k);
      EXPECT_TRUE(taken.insert(p).second);
      EXPECT_EQ(TypeParam::inverse(d, p), (Element{.n = n, .k = k}));
      EXPECT_LT(p.byte, TypeParam::bytes(d));
    }
  }
  EXPECT_GT(taken.rbegin()->byte, std::int64_t{1} << 33);
}

REGISTER_TYPED_TEST_SUITE_P(LayoutTest, IsALayoutAndAcceptsSomeOfTheTestedSizes,
                            GivesEveryElementItsOwnPlace, InverseFindsTheElementOfEveryPlace,
                            UnpackGivesBackWhatPackTookAndLeavesSpareBitsAlone, HoldsForRandomSizes,
                            KeepsLargeOffsetsApart);

}  // namespace fewbit
