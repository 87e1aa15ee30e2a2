// SPDX-License-Identifier: Apache-2.0
// Tokens as tiles take them, and what is computed between two products.
#include "kernels/cpu/tile_operand.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/float_convert.hpp"
#include "kernels/levels.hpp"
#include "kernels/panel_buffer.hpp"

namespace fewbit {
namespace {

using test::GuardedFloats;

// An operand has a place of its own for every value of every token, and none between.
TEST(TileOperand, GivesEveryValueItsOwnPlace) {
  for (const std::int64_t tokens : {1, 5, 16, 17, 40, 51, 241, 256}) {
    std::set<std::int64_t> taken;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t k = 0; k < 96; ++k) {
        const std::int64_t place = tile_place(tokens, 96, t, k);
        EXPECT_TRUE(taken.insert(place).second) << "token " << t << ", k " << k;
        EXPECT_LT(place, tokens * 96);
      }
    EXPECT_EQ(std::ssize(taken), tokens * 96);
  }
}

TEST(TileOperand, LoadsTokensWhereTheyBelong) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
  std::mt19937 random(5);
  for (const std::int64_t k : {1, 16, 31, 32, 33, 80, 2880}) {
    for (const std::int64_t tokens : {1, 3, 16, 21}) {
      const std::int64_t row = tile_row(k);
      AlignedBuffer memory = *AlignedBuffer::allocate(static_cast<std::uint64_t>(tokens * row * 2));
      auto* operand = reinterpret_cast<std::uint16_t*>(memory.data());
      std::vector<std::uint16_t> values(static_cast<std::size_t>(tokens * k));
      for (std::uint16_t& value : values) value = static_cast<std::uint16_t>(random());
      std::vector<std::int32_t> order(static_cast<std::size_t>(k));
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
      std::ranges::shuffle(order, random);
      for (int ordered = 0; ordered < 2; ++ordered) {
        std::memset(memory.data(), 0x5a, memory.size());
        for (std::int64_t t = 0; t < tokens; ++t) {
          const auto* from = reinterpret_cast<const std::uint8_t*>(values.data() + t * k);
          std::uint16_t* to = operand + tile_place(tokens, row, t, 0);
          const std::int64_t rows = tile_rows(tokens, t);
          const float largest = ordered == 0 ? tile_load(from, k, rows, to)
                                             : tile_load_ordered(from, order.data(), k, rows, to);
          float expected = 0;
          for (std::int64_t i = 0; i < row; ++i) {
            const auto at = static_cast<std::size_t>(
                t * k + (ordered == 0 || i >= k ? i : order[static_cast<std::size_t>(i)]));
            const std::uint16_t bits = i < k ? values[at] : std::uint16_t{0};
            const float magnitude = std::abs(bf16_to_f32(bits));
            if (magnitude > expected) expected = magnitude;
            ASSERT_EQ(operand[tile_place(tokens, row, t, i)], bits) << "token " << t << ", k " << i;
          }
          EXPECT_EQ(largest, expected);
        }
      }
    }
  }
}

TEST(TileOperand, StoresFeaturesRoundedToBf16) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
  std::mt19937 random(6);
  for (const std::int64_t tokens : {1, 16, 21}) {
    GuardedFloats values(tokens * 16);
    AlignedBuffer operand = *AlignedBuffer::allocate(static_cast<std::uint64_t>(tokens * 128));
    const auto* words = reinterpret_cast<const std::uint16_t*>(operand.data());
    for (int round = 0; round < 100; ++round) {
      for (std::int64_t i = 0; i < values.size(); ++i) {
        const auto bits = static_cast<std::uint32_t>(random());
        // Every second number is a tie or near one.
        values[i] =
            std::bit_cast<float>(round % 2 == 0 ? bits : (bits & 0xffff0000U) + 0x7fffU + bits % 3);
      }
      const std::int64_t k = round % 4 * 16;
      tile_store_features(values.data(), tokens, 64, k,
                          reinterpret_cast<std::uint16_t*>(operand.data()));
      for (std::int64_t i = 0; i < values.size(); ++i) {
        const std::uint16_t got = words[tile_place(tokens, 64, i / 16, k + i % 16)];
        if (std::isnan(values[i]))
          EXPECT_TRUE(std::isnan(bf16_to_f32(got)));
        else
          EXPECT_EQ(got, f32_to_bf16(values[i])) << values[i];
      }
    }
  }
}

TEST(TileOperand, GateBySigmoidStaysWithinItsBound) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
  const float infinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(8);
  std::uniform_real_distribution<float> gates(-120.0F, 120.0F);
  for (const ActivationConstants& constants :
       {ActivationConstants{}, ActivationConstants{.alpha = 1.702F, .beta = 1, .limit = 7}}) {
    GuardedFloats gate(4096);
    GuardedFloats up(4096);
    std::vector<double> expected;
    std::vector<double> size;
    for (std::int64_t i = 0; i < gate.size(); ++i) {
      gate[i] = gates(random) * (i % 3 == 0 ? 1.0F : 0.05F);
      up[i] = gates(random);
      const double g = clamp_gate(double{gate[i]}, double{constants.limit});
      const double u = clamp_up(double{up[i]}, double{constants.limit});
      expected.push_back(swigluoai(g, u, double{constants.alpha}, double{constants.beta}));
      size.push_back(std::abs(g * (u + double{constants.beta})));
    }
    gate_by_sigmoid(constants, gate.size(), gate.data(), up.data());
    for (std::int64_t i = 0; i < gate.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      ASSERT_LE(std::abs(gate[i] - expected[at]), 8 * 0x1p-24 * size[at]) << expected[at];
    }
    for (std::int64_t i = 0; i < 16; ++i) {
      gate[i] = i % 4 == 0 ? NAN : i % 4 == 1 ? -infinity : i % 4 == 2 ? infinity : 1.0F;
      up[i] = i % 4 == 3 ? NAN : 2.0F;
    }
    gate_by_sigmoid(constants, 16, gate.data(), up.data());
    for (std::int64_t i = 0; i < 16; ++i)
      EXPECT_EQ(std::isnan(gate[i]), i % 4 != 2) << i << ": " << gate[i];
    gate.expect_guards_intact();
  }
}

TEST(TileOperand, SumsRowsInOrder) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (const std::int64_t count : {0, 1, 8}) {
    GuardedFloats rows(count * 48);
    const float* row[8] = {};
    float weights[8] = {};
    for (std::int64_t i = 0; i < rows.size(); ++i) rows[i] = normal(random);
    for (std::int64_t r = 0; r < count; ++r) {
      row[r] = rows.data() + r * 48;
      weights[r] = normal(random);
    }
    std::vector<std::uint16_t> out(49, 0x5a5a);
    sum_rows_bf16(row, weights, count, 48, reinterpret_cast<std::uint8_t*>(out.data()));
    EXPECT_EQ(out[48], 0x5a5a);
    for (std::int64_t i = 0; i < 48; ++i) {
      double sum = 0;
      double size = 0;
      for (std::int64_t r = 0; r < count; ++r) {
        sum += double{weights[r]} * double{rows[r * 48 + i]};
        size += std::abs(double{weights[r]} * double{rows[r * 48 + i]});
      }
      EXPECT_LE(std::abs(bf16_to_f32(out[static_cast<std::size_t>(i)]) - sum),
                std::abs(sum) * 0x1p-8 + size * 16 * 0x1p-24);
    }
  }
}

}  // namespace
}  // namespace fewbit
