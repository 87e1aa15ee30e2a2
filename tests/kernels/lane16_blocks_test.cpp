// SPDX-License-Identifier: Apache-2.0
// The lane16 kernels on blocks of GGUF, against what the blocks decode to.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu/kernel_table.hpp"
#include "canonical/gguf_blocks.hpp"
#include "core/aligned_buffer.hpp"
#include "core/cpu_features.hpp"
#include "core/float_convert.hpp"
#include "kernels/levels.hpp"
#include "kernels/panel_buffer.hpp"
#include "kernels/tile_buffer.hpp"
#include "layout/cpu_k_blocks.hpp"

namespace fewbit {
namespace {

using test::GuardedFloats;

struct BlockForm {
  const char* name;
  const char* type;
  Lane16Codes codes;
  std::int64_t group;
  std::int64_t scale_at;  // the f16 scales of a block
  std::int64_t scales;
};
constexpr BlockForm forms[] = {{"q4_k", "Q4_K", Lane16Codes::q4_k, 32, 0, 2},
                               {"q6_k", "Q6_K", Lane16Codes::q6_k, 16, 208, 1}};

struct Blocks {
  Dims dims;
  std::vector<std::uint8_t> rows;
  std::vector<float> values;  // times the global scale
  AlignedBuffer packed;
};
constexpr float global_scale = 0.731F;

// Every bit as it comes but the exponents of the f16 scales, which are from 2^-7 to 2^-4.
Blocks random_blocks(const BlockForm& form, Dims dims, std::uint32_t seed) {
  const GgufType& type = *find_gguf_type(form.type);
  Blocks out{.dims = dims, .rows = {}, .values = {}, .packed = {}};
  out.rows.resize(static_cast<std::size_t>(dims.n * dims.k / 256 * type.bytes));
  std::mt19937 random(seed);
  for (auto& byte : out.rows) byte = static_cast<std::uint8_t>(random());
  for (std::size_t at = 0; at < out.rows.size(); at += static_cast<std::size_t>(type.bytes)) {
    for (std::int64_t s = 0; s < form.scales; ++s) {
      auto& high = out.rows[at + static_cast<std::size_t>(form.scale_at + s * 2 + 1)];
      high = static_cast<std::uint8_t>((high & 0x8fU) | 0x20U);
    }
  }
  out.values.resize(static_cast<std::size_t>(dims.n * dims.k));
  EXPECT_TRUE(decode_gguf_blocks(type, std::as_bytes(std::span(out.rows)), out.values));
  for (float& value : out.values) value *= global_scale;
  const bool q4 = form.codes == Lane16Codes::q4_k;
  const std::int64_t bytes =
      q4 ? CpuBlockLane16<Q4kBlock>::bytes(dims) : CpuBlockLane16<Q6kBlock>::bytes(dims);
  out.packed = *AlignedBuffer::allocate(static_cast<std::uint64_t>(bytes));
  (q4 ? pack_cpu_q4_k : pack_cpu_q6_k)(dims, out.rows.data(),
                                       reinterpret_cast<std::uint8_t*>(out.packed.data()));
  return out;
}

// How products are made: of panels of f32, or by dot products of bf16 pairs.
enum class Unit { vectors, dots };

std::vector<float> random_tokens(Unit unit, std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = normal(random) * (random() % 64 == 0 ? 100.0F : 1.0F);
  if (unit == Unit::dots)
    for (float& value : x) value = bf16_to_f32(f32_to_bf16(value));
  return x;
}

using Param = std::tuple<IsaLevel, Unit, BlockForm>;
class Lane16Blocks256 : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    FEWBIT_SKIP_UNUSABLE(std::get<0>(GetParam()));
    if (unit() == Unit::dots) FEWBIT_SKIP_WITHOUT_DOTS();
  }
  static Unit unit() { return std::get<1>(GetParam()); }
  static const BlockForm& form() { return std::get<2>(GetParam()); }

  static GuardedFloats run(const Blocks& blocks, const std::vector<float>& x, int tokens) {
    const auto [n, k] = blocks.dims;
    const Lane16Blocks weight{.codes = reinterpret_cast<const std::uint8_t*>(blocks.packed.data()),
                              .scale_format = Lane16Scale::with_codes,
                              .global_scale = global_scale,
                              .blocks = (n + 15) / 16,
                              .k = k,
                              .group = form().group};
    GuardedFloats y(weight.blocks * 16 * tokens);
    if (unit() == Unit::dots) {
      test::TileBuffer operand(x, k, tokens);
      const CpuFeatures dots{.avx512_bf16 = true, .avx512_fast_bf16 = true};
      const cpu::Kernels& kernels = cpu::kernels_of(std::get<0>(GetParam()), dots);
      kernels.tiles(form().codes)({.left = weight,
                                   .right = {},
                                   .pairs = weight.blocks,
                                   .x = operand.data(),
                                   .tokens = tokens,
                                   .left_y = y.data(),
                                   .y_pair = std::int64_t{16} * tokens});
      y.expect_guards_intact();
      return y;
    }
    GuardedFloats panel = test::panel_of(x, k, tokens);
    const cpu::Kernels& kernels = cpu::kernels_of(std::get<0>(GetParam()));
    kernels.lane16(form().codes)(weight, panel.data(), tokens, y.data());
    y.expect_guards_intact();
    return y;
  }
};

TEST_P(Lane16Blocks256, EverySizeAndNumberOfTokensStaysWithinTheBound) {
  for (const Dims dims : {Dims{48, 512}, Dims{80, 2816}, Dims{160, 256}, Dims{1, 256}}) {
    const Blocks blocks = random_blocks(form(), dims, 5);
    for (int tokens = 1; tokens <= max_panel_tokens; tokens += dims.k > 1000 ? 11 : 1) {
      const std::vector<float> x = random_tokens(unit(), dims.k * tokens, 6);
      GuardedFloats y = run(blocks, x, tokens);
      for (std::int64_t row = 0; row < (dims.n + 15) / 16 * 16; ++row) {
        for (int t = 0; t < tokens; ++t) {
          double sum = 0;
          double magnitude = 0;
          for (std::int64_t i = 0; i < dims.k && row < dims.n; ++i) {
            const double product =
                double{blocks.values[static_cast<std::size_t>(row * dims.k + i)]} *
                double{x[static_cast<std::size_t>(t * dims.k + i)]};
            sum += product;
            magnitude += std::abs(product);
          }
          ASSERT_LE(std::abs(test::result_at(y, row, t, tokens) - sum),
                    static_cast<double>(dims.k) * 0x1p-24 * magnitude)
              << dims.n << " x " << dims.k << ", row " << row << ", token " << t;
        }
      }
    }
  }
}

// Token k is one at k: every weight by itself, to the bit but for the rounding of its factor.
TEST_P(Lane16Blocks256, EveryWeightIsWhatTheBlockDecodesTo) {
  const Blocks blocks = random_blocks(form(), {.n = 32, .k = 256}, 7);
  for (int first = 0; first < 256; first += 16) {
    std::vector<float> x(256 * 16);
    for (std::size_t t = 0; t < 16; ++t) x[t * 256 + static_cast<std::size_t>(first) + t] = 1.0F;
    GuardedFloats y = run(blocks, x, 16);
    for (std::int64_t row = 0; row < 32; ++row) {
      for (int t = 0; t < 16; ++t) {
        const float want = blocks.values[static_cast<std::size_t>(row * 256 + first + t)];
        EXPECT_NEAR(test::result_at(y, row, t, 16), want, 0x1p-22F * std::abs(want))
            << "row " << row << ", k " << first + t;
      }
    }
  }
}

TEST_P(Lane16Blocks256, ATokenDoesNotDependOnTheOthers) {
  const Blocks blocks = random_blocks(form(), {.n = 80, .k = 768}, 8);
  const std::vector<float> x = random_tokens(unit(), 768 * max_panel_tokens, 9);
  for (int tokens = 1; tokens <= max_panel_tokens; ++tokens) {
    GuardedFloats all = run(blocks, x, tokens);
    const auto last = x.begin() + std::ptrdiff_t{768} * (tokens - 1);
    GuardedFloats alone = run(blocks, std::vector<float>(last, last + 768), 1);
    for (std::int64_t row = 0; row < 80; ++row) {
      ASSERT_EQ(test::result_at(all, row, tokens - 1, tokens), test::result_at(alone, row, 0, 1))
          << "row " << row << ", " << tokens << " tokens";
    }
  }
}

std::string param_name(const ::testing::TestParamInfo<Param>& test) {
  const auto& [level, unit, form] = test.param;
  return std::string(unit == Unit::dots ? "dots" : isa_name(level)) + "_" + form.name;
}
INSTANTIATE_TEST_SUITE_P(Forms, Lane16Blocks256,
                         ::testing::Combine(::testing::ValuesIn(test::kernel_levels),
                                            ::testing::Values(Unit::vectors),
                                            ::testing::ValuesIn(forms)),
                         param_name);
INSTANTIATE_TEST_SUITE_P(Dots, Lane16Blocks256,
                         ::testing::Combine(::testing::Values(IsaLevel::avx512),
                                            ::testing::Values(Unit::dots),
                                            ::testing::Values(forms[1])),
                         param_name);

}  // namespace
}  // namespace fewbit
