// SPDX-License-Identifier: Apache-2.0
// Attention and the small operations around it, on every instruction set that the machine has.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/aligned_buffer.hpp"
#include "core/device_info.hpp"
#include "model/attention_core.hpp"
#include "model/element.hpp"
#include "model/rms_norm.hpp"
#include "model/rope.hpp"

namespace fewbit {
namespace {

class AttentionTest : public testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override {
    const auto device = detect_cpu();
    ASSERT_TRUE(device) << device.error().message();
    if (GetParam() != IsaLevel::generic && !has_isa(device->cpu, GetParam())) {
      GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
    }
  }
};

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(to_size(count));
  for (float& value : values) value = static_cast<float>(random() >> 8) * 0x1p-22F - 2.0F;
  return values;
}

// All tokens of a sequence: queries [tokens][heads][dim], keys and values [tokens][kv_heads][dim].
struct Problem {
  AttentionShape shape;
  std::int64_t tokens = 0;
  std::vector<float> queries, keys, values;

  Problem(AttentionShape s, std::int64_t count)
      : shape(s),
        tokens(count),
        queries(random_values(count * s.heads * s.head_dim, 1)),
        keys(random_values(count * s.kv_heads * s.head_dim, 2)),
        values(random_values(count * s.kv_heads * s.head_dim, 3)) {}
};

std::vector<double> by_hand(const Problem& p) {
  const AttentionShape& s = p.shape;
  std::vector<double> out(p.queries.size());
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      std::vector<double> weights;
      double total = 0;
      for (std::int64_t k = 0; k <= t; ++k) {
        double score = 0;
        for (std::int64_t d = 0; d < s.head_dim; ++d) {
          score += double{p.queries[to_size((t * s.heads + h) * s.head_dim + d)]} *
                   p.keys[to_size((k * s.kv_heads + h / s.group()) * s.head_dim + d)];
        }
        weights.push_back(std::exp(score * double{s.scale}));
        total += weights.back();
      }
      for (std::int64_t k = 0; k <= t; ++k) {
        for (std::int64_t d = 0; d < s.head_dim; ++d) {
          out[to_size((t * s.heads + h) * s.head_dim + d)] +=
              weights[to_size(k)] / total *
              p.values[to_size((k * s.kv_heads + h / s.group()) * s.head_dim + d)];
        }
      }
    }
  }
  return out;
}

// Everything cached, the last `count` tokens asked for. Unused parts of the cache hold NaN.
std::vector<float> run(const Problem& p, std::int64_t count, int workers, IsaLevel level) {
  const AttentionShape& s = p.shape;
  const KvLayout layout{.kv_heads = s.kv_heads, .head_dim = s.head_dim, .capacity = p.tokens + 9};
  std::vector<float> cache(to_size(layout.elements()), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    for (std::int64_t h = 0; h < s.kv_heads; ++h) {
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        const std::size_t from = to_size((t * s.kv_heads + h) * s.head_dim + d);
        cache[to_size(layout.key(h, t) + d * attention_keys)] = p.keys[from];
        cache[to_size(layout.value(h, t) + d)] = p.values[from];
      }
    }
  }
  const std::size_t first = to_size((p.tokens - count) * s.heads * s.head_dim);
  std::vector<float> out(p.queries.size() - first);
  const std::uint64_t bytes = *attention_scratch_bytes(s);
  AlignedBuffer scratch = *AlignedBuffer::allocate(bytes * static_cast<std::uint64_t>(workers));
  std::fill(scratch.span().begin(), scratch.span().end(), std::byte{0xFF});
  attend({.shape = s,
          .tile = attention_tile_for(level),
          .dtype = DType::f32,
          .tokens = count,
          .start = p.tokens - count,
          .queries = std::as_bytes(std::span(p.queries).subspan(first)),
          .layout = layout,
          .cache = std::as_bytes(std::span(cache)),
          .output = std::as_writable_bytes(std::span(out)),
          .workers = workers,
          .scratch = scratch.span()},
         serial_executor());
  return out;
}

// Weights sum to 1 and values are below 2, so an error is a relative error of a weight (from its
// score, below 20, and exp) times 2.
TEST_P(AttentionTest, AgreesWithDouble) {
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 2, 1.0F}, AttentionShape{6, 2, 10, 0.5F},
        AttentionShape{4, 4, 64, 0.1F}, AttentionShape{5, 1, 34, 0.2F},
        AttentionShape{130, 1, 16, 0.3F}}) {
    for (const std::int64_t tokens : {1, 2, 63, 64, 65, 128, 150}) {
      const Problem p(shape, tokens);
      const std::vector<double> expected = by_hand(p);
      const std::vector<float> found = run(p, tokens, 1, GetParam());
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], 2e-5)
            << "head_dim " << shape.head_dim << " tokens " << tokens << " element " << i;
      }
    }
  }
}

// A token's output has the same bits whatever else is asked for, and whoever computes it.
TEST_P(AttentionTest, BitsDoNotDependOnTheCall) {
  const Problem p({6, 2, 24, 0.3F}, 150);
  const std::vector<float> all = run(p, 150, 1, GetParam());
  EXPECT_EQ(run(p, 150, 3, GetParam()), all);
  for (const std::int64_t count : {1, 5, 30, 87, 149}) {
    const std::vector<float> some = run(p, count, 2, GetParam());
    EXPECT_EQ(some,
              std::vector<float>(all.end() - static_cast<std::ptrdiff_t>(some.size()), all.end()))
        << count;
  }
}

// Scores of +-1e4 neither overflow nor divide by zero.
TEST_P(AttentionTest, LargeScoresStayFinite) {
  Problem p({2, 1, 16, 1000.0F}, 100);
  for (const float value : run(p, 100, 1, GetParam())) ASSERT_LE(std::abs(value), 2.0F);
}

TEST_P(AttentionTest, NanIsNotHidden) {
  Problem p({1, 1, 8, 1.0F}, 70);
  p.keys[8 * 66] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> found = run(p, 70, 1, GetParam());
  EXPECT_FALSE(std::isnan(found[8 * 65]));
  for (std::size_t t = 66; t < 70; ++t) EXPECT_TRUE(std::isnan(found[8 * t])) << t;
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionTest,
                         testing::Values(IsaLevel::generic, IsaLevel::neon, IsaLevel::avx2,
                                         IsaLevel::avx512),
                         [](const auto& level) { return isa_name(level.param); });

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  const RmsNorm norm{{1.0F, 2.0F, 0.5F}, 0.25F};
  const std::vector<float> x = {1.0F, -2.0F, 2.0F, 0.0F, 0.0F, 0.0F};
  std::vector<float> y(6);
  rms_norm(norm, DType::f32, std::as_bytes(std::span(x)), std::as_writable_bytes(std::span(y)),
           serial_executor());
  const double root = std::sqrt(9.0 / 3.0 + 0.25);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(y[i], x[i] * norm.weight[i] / root, 1e-6);
    EXPECT_EQ(y[i + 3], 0.0F);
  }
}

// One rounding is off by at most 2^-8; a second one would add as much again.
TEST(RmsNorm, Bf16IsRoundedOnce) {
  constexpr std::size_t width = 1000;
  const RmsNorm norm{random_values(width, 4), 1e-6F};
  std::vector<std::uint16_t> x(width);
  std::vector<std::uint16_t> y(width);
  double squares = 0;
  const std::vector<float> values = random_values(width, 5);
  for (std::size_t i = 0; i < width; ++i) {
    x[i] = f32_to_bf16(values[i]);
    squares += std::pow(double{bf16_to_f32(x[i])}, 2);
  }
  rms_norm(norm, DType::bf16, std::as_bytes(std::span(x)), std::as_writable_bytes(std::span(y)),
           serial_executor());
  for (std::size_t i = 0; i < width; ++i) {
    const double exact = double{bf16_to_f32(x[i])} * norm.weight[i] /
                         std::sqrt(squares / static_cast<double>(width) + 1e-6);
    EXPECT_NEAR(bf16_to_f32(y[i]), exact, std::abs(exact) * 0x1.0001p-8);
  }
}

TEST(Rope, TurnsEachPairByItsAngle) {
  constexpr std::size_t half = 3;
  std::vector<float> cosine(2 * half);
  std::vector<float> sine(2 * half);
  fill_rope(100.0, 7, half, cosine, sine);
  for (std::size_t row = 0; row < 2; ++row) {
    std::vector<float> head = {1.0F, 0.0F, 3.0F, 0.0F, 2.0F, 4.0F};
    rotate_halves(head, std::span(cosine).subspan(row * half, half),
                  std::span(sine).subspan(row * half, half));
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(7 + row) * std::pow(100.0, -double(i) / half);
      const double a = std::array{1.0, 0.0, 3.0}[i];
      const double b = std::array{0.0, 2.0, 4.0}[i];
      EXPECT_NEAR(head[i], a * std::cos(angle) - b * std::sin(angle), 1e-5);
      EXPECT_NEAR(head[i + half], a * std::sin(angle) + b * std::cos(angle), 1e-5);
    }
  }
}

// No two elements of a cache share a place.
TEST(KvLayout, GivesEveryElementItsOwnPlace) {
  const KvLayout layout{.kv_heads = 3, .head_dim = 5, .capacity = 130};
  std::vector<int> taken(to_size(layout.elements()));
  for (std::int64_t h = 0; h < 3; ++h) {
    for (std::int64_t t = 0; t < layout.positions(); ++t) {
      for (std::int64_t d = 0; d < 5; ++d) {
        ++taken.at(to_size(layout.key(h, t) + d * attention_keys));
        ++taken.at(to_size(layout.value(h, t) + d));
      }
    }
  }
  for (const int count : taken) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace fewbit
