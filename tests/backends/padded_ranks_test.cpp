// SPDX-License-Identifier: Apache-2.0
// MXFP4 experts of gpt-oss cut among tensor ranks as its loaders do: whole groups, the last rank
// padded. What Marlin's kernels multiply with adds up to the product with the whole matrix.
#include <gtest/gtest.h>

#include "backends/foreign_case.hpp"
#include "prepared/expert_slice.hpp"
#include "select/rank_problem.hpp"

namespace fewbit {
namespace {

using namespace test;

constexpr std::int64_t columns = 256;

Case gpt_oss_case(std::int64_t intermediate) {
  Case c = float_case("mxfp4", intermediate, columns);
  c.problem.activation = {.kind = Activation::swigluoai};
  set_biases(c);
  for (float& bias : c.expert.down_bias) bias = std::floor(bias);  // bf16 holds it
  return c;
}

struct RankCase {
  Case share;
  ExpertSlice slice;
};
RankCase rank_of(const Case& whole, int ranks, int rank) {
  RankCase out;
  out.slice = plan_slice(whole.expert, 1,
                         {.split = {.tensor_ranks = ranks, .expert_ranks = 1, .rank = rank},
                          .dealing = dealing_of(Engine::vllm, whole.problem)},
                         "")
                  .value();
  out.share.problem = whole.problem;
  out.share.problem.intermediate_size = out.slice.padded_features;
  out.share.expert = slice_expert(whole.expert, out.slice, "").value();
  return out;
}

// Place of column n among byte scales: groups of eight, two of each four exchanged.
std::int64_t byte_column(std::int64_t n) {
  const std::int64_t at = grouped(n);
  const std::int64_t last = at % 4;
  return at - last + (last == 1 ? 2 : last == 2 ? 1 : last);
}

double marlin_value(const Packed& packed, const std::string& matrix, std::int64_t rows,
                    std::int64_t n, std::int64_t k) {
  constexpr double values[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  const int code = tile_code(packed, (matrix + ".words").c_str(), rows, n, k);
  const auto scale =
      packed.at<std::uint8_t>((matrix + ".scales").c_str(), k / 32 * rows + byte_column(n));
  const double value = values[code & 7] * std::ldexp(1.0, scale - 127);
  return (code & 8) != 0 ? -value : value;
}

std::vector<float> values(const QuantizedTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.n * tensor.k));
  EXPECT_TRUE(dequantize_rows(tensor, 0, out));
  return out;
}

double bias_at(const Packed& packed, const char* name, std::int64_t n) {
  // Bias columns of 32: 8 * ((x % 8) / 2) + 2 * (x / 8) + x % 2.
  const std::int64_t x = n % 32;
  return bf16_to_f32(packed.at<std::uint16_t>(name, n - x + 8 * (x % 8 / 2) + 2 * (x / 8) + x % 2));
}

// Codes, powers of two and small integers: every product and sum is exact in double.
TEST(PaddedRanks, WhatMarlinComputesAddsUpToTheWholeProduct) {
  const struct {
    std::int64_t intermediate;
    int ranks;
    std::int64_t share, last, stored;  // stored: padded to a tile of 128
  } cases[] = {{640, 4, 160, 160, 256},
               {576, 4, 160, 96, 256},
               {416, 4, 128, 32, 128},
               {2880, 8, 384, 192, 384}};
  for (const auto& one : cases) {
    SCOPED_TRACE(std::to_string(one.intermediate) + " over " + std::to_string(one.ranks));
    const Case whole = gpt_oss_case(one.intermediate);
    const std::vector<float> down = values(whole.expert.down);
    const std::vector<float> gate = values(*whole.expert.gate);
    std::vector<double> sum(columns);
    std::int64_t features = 0;
    for (int rank = 0; rank < one.ranks; ++rank) {
      const RankCase part = rank_of(whole, one.ranks, rank);
      EXPECT_EQ(part.slice.first_feature, features);
      EXPECT_EQ(part.slice.padded_features, one.share);
      EXPECT_EQ(part.slice.features, rank == one.ranks - 1 ? one.last : one.share);
      const auto packed = pack("marlin", part.share);
      ASSERT_TRUE(packed) << packed.error().message();
      EXPECT_EQ(packed->plan.find("w13.scales")->shape, (Shape{columns / 32, 2 * one.stored}));
      EXPECT_EQ(packed->plan.find("w2.scales")->shape, (Shape{one.stored / 32, columns}));
      EXPECT_EQ(undone("marlin", part.share, *packed), "the same");
      for (std::int64_t n = 0; n < columns; ++n) {
        for (std::int64_t k = 0; k < one.stored; ++k) {
          const double value = marlin_value(*packed, "w2", columns, n, k);
          if (k >= part.slice.features) {
            ASSERT_EQ(value, 0) << n << ", " << k;
            continue;
          }
          const std::int64_t column = features + k;
          ASSERT_EQ(value, down[static_cast<std::size_t>(n * one.intermediate + column)]);
          sum[static_cast<std::size_t>(n)] += value * static_cast<double>(column * 7 % 31 - 15);
        }
        sum[static_cast<std::size_t>(n)] += bias_at(*packed, "w2.bias", n);
      }
      // Gate above up, each padded by itself: a padded feature has no weights and no bias.
      for (const std::int64_t r : {std::int64_t{0}, part.slice.features - 1, one.stored - 1}) {
        const bool padding = r >= part.slice.features;
        const auto row = static_cast<std::size_t>(features + r);
        EXPECT_EQ(bias_at(*packed, "w13.bias", r), padding ? 0 : whole.expert.gate_bias[row]);
        EXPECT_EQ(bias_at(*packed, "w13.bias", one.stored + r),
                  padding ? 0 : whole.expert.up_bias[row]);
        for (const std::int64_t k : {0, 33, 255}) {
          const double want = padding ? 0 : gate[row * columns + static_cast<std::size_t>(k)];
          EXPECT_EQ(marlin_value(*packed, "w13", 2 * one.stored, r, k), want) << r << ", " << k;
        }
      }
      features += part.slice.features;
    }
    EXPECT_EQ(features, one.intermediate);
    std::vector<double> want(columns);
    for (std::int64_t n = 0; n < columns; ++n) {
      double& all = want[static_cast<std::size_t>(n)];
      all = whole.expert.down_bias[static_cast<std::size_t>(n)];
      for (std::int64_t k = 0; k < one.intermediate; ++k) {
        all += double{down[static_cast<std::size_t>(n * one.intermediate + k)]} *
               static_cast<double>(k * 7 % 31 - 15);
      }
    }
    EXPECT_EQ(sum, want);
  }
}

// The buffers of all ranks have one shape, whatever the kernel's padding.
TEST(PaddedRanks, EveryRankHasTheSameBuffers) {
  const Case whole = gpt_oss_case(576);
  for (const char* backend : {"marlin", "flashinfer_trtllm_mxfp4"}) {
    const auto first = pack(backend, rank_of(whole, 4, 0).share);
    const auto last = pack(backend, rank_of(whole, 4, 3).share);
    ASSERT_TRUE(first && last) << backend;
    ASSERT_EQ(first->plan.buffers.size(), last->plan.buffers.size());
    for (std::size_t i = 0; i < first->plan.buffers.size(); ++i) {
      EXPECT_EQ(first->plan.buffers[i].shape, last->plan.buffers[i].shape);
    }
  }
}

}  // namespace
}  // namespace fewbit
