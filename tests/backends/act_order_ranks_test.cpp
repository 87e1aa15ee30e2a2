// SPDX-License-Identifier: Apache-2.0
// Act-order experts cut among tensor ranks for Marlin: every rank holds its columns sorted by group
// and all scales, and what its kernels compute adds up to the product with the whole matrix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/foreign_case.hpp"
#include "prepared/expert_slice.hpp"
#include "select/rank_problem.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

using namespace test;
using testing::HasSubstr;

Case ordered_case(const char* scheme, std::int64_t intermediate) {
  Case c = integer_case(scheme, intermediate);
  const std::int64_t group = c.problem.down.scale->granularity.cols;
  c.expert.gate->g_idx = act_order(hidden, group, 3);
  c.expert.up.g_idx = act_order(hidden, group, 3);
  c.expert.down.g_idx = act_order(intermediate, group, 5);
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
                          .dealing = Dealing::even},
                         "")
                  .value();
  out.share.problem = whole.problem;
  out.share.problem.intermediate_size = out.slice.features;
  out.share.expert = slice_expert(whole.expert, out.slice, "").value();
  return out;
}

// What the kernel multiplies column k of row n with.
double marlin_value(const Packed& packed, std::int64_t n, std::int64_t k) {
  const std::int64_t group = packed.at<std::int32_t>("w2.g_idx", k);
  const std::int64_t cell = group * hidden + grouped(n);
  int zero = 8;
  if (packed.plan.find("w2.zeros") != nullptr) {
    const std::int64_t slot = cell % 2 * 4 + cell % 8 / 2;
    zero = packed.nibble("w2.zeros", cell / 8 * 4 + slot / 2, slot % 2 == 1);
  }
  const float scale = bf16_to_f32(packed.at<std::uint16_t>("w2.scales", cell));
  return (tile_code(packed, "w2.words", hidden, n, k) - zero) * double{scale};
}

std::vector<float> values(const QuantizedTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.n * tensor.k));
  EXPECT_TRUE(dequantize_rows(tensor, 0, out));
  return out;
}

// Codes, powers of two and small integers: every product and sum is exact in double.
TEST(ActOrderRanks, WhatMarlinComputesAddsUpToTheWholeProduct) {
  const struct {
    const char* backend;
    const char* scheme;
    std::int64_t intermediate;
    int ranks;
  } cases[] = {
      {"marlin", "gptq-int4-g32-actorder", 256, 2},
      {"marlin", "ct-int4-g32-asym-actorder", 256, 4},
      {"marlin", "gptq-int4-g64-actorder", 256, 4},  // a rank has one group's worth of columns
      {"sglang_marlin", "gptq-int4-g128-actorder", 384, 2},  // 192 columns, 3 groups
      {"sglang_marlin", "gptq-int4-g128-actorder", 256, 4},  // less than a group's worth
      {"sglang_marlin", "gptq-int4-g128-actorder", 128, 2},  // half of the only group
  };
  for (const auto& one : cases) {
    const Case whole = ordered_case(one.scheme, one.intermediate);
    const std::int64_t group = whole.problem.down.scale->granularity.cols;
    const std::vector<float> all = values(whole.expert.down);
    std::vector<double> sum(hidden);
    std::vector<double> want(hidden);
    for (int rank = 0; rank < one.ranks; ++rank) {
      const RankCase part = rank_of(whole, one.ranks, rank);
      const auto packed = pack(one.backend, part.share);
      ASSERT_TRUE(packed) << packed.error().message();
      EXPECT_EQ(packed->plan.find("w2.scales")->shape, (Shape{one.intermediate / group, hidden}));
      const std::int64_t features = part.slice.features;
      for (std::int64_t n = 0; n < hidden; ++n) {
        for (std::int64_t k = 0; k < features; ++k) {
          const std::int64_t column =
              part.slice.first_feature + packed->at<std::int32_t>("w2.order", k);
          const double value = marlin_value(*packed, n, k);
          const double of_whole = all[static_cast<std::size_t>(n * one.intermediate + column)];
          ASSERT_EQ(value, of_whole)
              << one.scheme << " rank " << rank << " " << n << ", " << column;
          const auto x = static_cast<double>(column * 7 % 31 - 15);
          sum[static_cast<std::size_t>(n)] += value * x;
        }
      }
      // Rows of gate and up, whose columns no rank shares.
      const std::int64_t from = packed->at<std::int32_t>("w13.order", 3);
      EXPECT_EQ(tile_code(*packed, "w13.words", 2 * features, features + 1, 3),
                code_at(whole.expert.up, part.slice.first_feature + 1, from));
    }
    for (std::int64_t n = 0; n < hidden; ++n) {
      for (std::int64_t k = 0; k < one.intermediate; ++k) {
        want[static_cast<std::size_t>(n)] +=
            double{all[static_cast<std::size_t>(n * one.intermediate + k)]} *
            static_cast<double>(k * 7 % 31 - 15);
      }
    }
    EXPECT_EQ(sum, want) << one.scheme;
  }
}

TEST(ActOrderRanks, EveryLegalShareIsPacked) {
  constexpr int counts[] = {1, 2, 3, 4, 6, 8};
  for (const char* backend : {"marlin", "sglang_marlin"}) {
    for (const char* scheme : {"gptq-int4-g32-actorder", "gptq-int4-g128-actorder"}) {
      const Case whole = ordered_case(scheme, 768);
      const LegalSplits splits =
          legal_splits(*find_backend(backend), whole.problem, *describe_device("sm_90"), counts);
      for (const RankVerdict& verdict : splits.tensor) {
        if (!verdict.refusals.empty()) {
          EXPECT_THAT(refusals_text(verdict.refusals), HasSubstr("needs intermediate_size % "));
          continue;
        }
        for (const int rank : {0, verdict.ranks - 1}) {
          EXPECT_EQ(error_of(backend, rank_of(whole, verdict.ranks, rank).share), "no error")
              << backend << " " << scheme << " over " << verdict.ranks;
        }
      }
      EXPECT_TRUE(splits.tensor[1].refusals.empty());
      EXPECT_FALSE(splits.tensor[5].refusals.empty());  // 96 fills no tile
    }
  }
}

// w13 in act-order beside w2 in runs of columns, which may be padded, and the other way round.
TEST(ActOrderRanks, EachMatrixIsSortedForItself) {
  Case c = ordered_case("gptq-int4-g32-actorder", 96);
  c.problem.down.act_order = ActOrder::none;
  c.expert.down.scheme.act_order = ActOrder::none;
  c.expert.down.g_idx = {};
  const auto packed = pack("marlin", c);
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packed->plan.find("w2.order"), nullptr);
  for (std::int64_t r = 0; r < 256; ++r) {
    const Row row = w13_row(c, r, 128);
    for (std::int64_t k = 0; k < hidden; ++k) {
      const std::int64_t from = packed->at<std::int32_t>("w13.order", k);
      const int want = row.matrix != nullptr ? code_at(*row.matrix, row.n, from) : 0;
      ASSERT_EQ(tile_code(*packed, "w13.words", 256, r, k), want) << r << ", " << k;
    }
  }
  c = ordered_case("gptq-int4-g32-actorder", 96);
  c.problem.gate_up.act_order = ActOrder::none;
  for (QuantizedTensor* tensor : {&*c.expert.gate, &c.expert.up}) {
    tensor->scheme.act_order = ActOrder::none;
    tensor->g_idx = {};
  }
  EXPECT_THAT(error_of("marlin", c), HasSubstr("96 needs padding to 128"));
}

// Kernels refuse act-order with one group: there is nothing to sort.
TEST(ActOrderRanks, OneGroupIsNoOrder) {
  const auto packed = pack("marlin", ordered_case("gptq-int4-g128-actorder", 128));
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_NE(packed->plan.find("w13.order"), nullptr);
  EXPECT_EQ(packed->plan.find("w2.order"), nullptr);
}

TEST(ActOrderRanks, TwoOrdersOfGateAndUpAreToldOfTheProblem) {
  Case c = ordered_case("gptq-int4-g32-actorder", 64);
  c.problem.two_order_experts = 3;
  const std::string why = find_backend("marlin")->why_unprepared(c.problem);
  EXPECT_THAT(why, HasSubstr("gate and up of 3 experts have two act-orders"));
  EXPECT_THAT(error_of("marlin", c), HasSubstr(why));
}

}  // namespace
}  // namespace fewbit
