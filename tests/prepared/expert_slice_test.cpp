// SPDX-License-Identifier: Apache-2.0
#include "prepared/expert_slice.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "backends/accumulation_bound.hpp"
#include "backends/moe_case.hpp"
#include "backends/rounding_bound.hpp"
#include "canonical/storage.hpp"

namespace fewbit {
namespace {

using test::Call;
using test::LayerSpec;

MoeWeights sliced(const MoeWeights& whole, const ExpertSlice& slice) {
  MoeWeights part{
      .hidden_size = whole.hidden_size, .intermediate_size = slice.features, .experts = {}};
  for (std::int64_t e = 0; e < slice.experts; ++e) {
    const auto& expert = whole.experts[static_cast<std::size_t>(slice.first_expert + e)];
    part.experts.push_back(*slice_expert(expert, slice, "test"));
  }
  return part;
}

MoeProblem problem_of(MoeProblem whole, const ExpertSlice& slice) {
  whole.intermediate_size = slice.features;
  whole.num_experts = slice.experts;
  whole.expert_map = slice.experts < slice.all_experts;
  return whole;
}

std::vector<float> outputs(const MoeProblem& problem, const MoeWeights& weights, const Call& call,
                           const char* backend = "cpu_generic") {
  const auto layer = test::prepare(backend, problem, weights, test::generic_cpu());
  EXPECT_TRUE(layer) << layer.error().message();
  return test::to_f32(problem.activation_dtype, *test::run(*layer, call));
}

// Every rank within its own error bound of its own part in double, and these parts add up.
TEST(ExpertSlice, OutputsOfAllTensorRanksAddUpToTheLayer) {
  for (const DType weight : {DType::f4_e2m1, DType::bf16}) {
    for (const std::int64_t inner : {48, 80, 192, 352}) {
      const LayerSpec spec{
          .hidden_size = 64, .intermediate_size = inner, .weight = weight, .activation = {}};
      const MoeWeights weights = test::random_weights(spec);
      MoeProblem problem = test::problem_of(spec, 2, 7);
      problem.activation_dtype = DType::f32;
      const Call call = test::random_call(problem, 7, 3);
      const MoeReferenceResult whole = test::expected(problem, weights, call);
      for (const int ranks : {2, 3}) {
        std::vector<double> sum(whole.out.size());
        std::vector<double> want(whole.out.size());
        std::vector<double> bound(whole.out.size());
        std::int64_t features = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto slice =
              plan_slice(weights.experts[0], 4,
                         {.split = {.tensor_ranks = ranks, .expert_ranks = 1, .rank = rank}}, "");
          ASSERT_TRUE(slice) << slice.error().message();
          EXPECT_EQ(slice->first_feature, features);
          features += slice->features;
          const MoeWeights part = sliced(weights, *slice);
          const MoeProblem of_part = problem_of(problem, *slice);
          const std::vector<float> out = outputs(of_part, part, call);
          const MoeReferenceResult reference = test::expected(of_part, part, call);
          const auto rounding =
              test::rounding_bound(of_part, part, test::input_of(call), reference);
          const auto accumulation = test::accumulation_bound(of_part, part, call, reference);
          for (std::size_t i = 0; i < out.size(); ++i) {
            sum[i] += out[i];
            want[i] += reference.out[i];
            bound[i] += (*rounding)[i] + accumulation[i];
          }
        }
        EXPECT_EQ(features, inner);
        for (std::size_t i = 0; i < sum.size(); ++i) {
          EXPECT_NEAR(want[i], whole.out[i], 1e-12);
          ASSERT_LE(std::abs(sum[i] - whole.out[i]), bound[i] + 1e-12)
              << dtype_name(weight) << " " << inner << " over " << ranks << ", element " << i;
        }
      }
    }
  }
}

TEST(ExpertSlice, AnExpertRankGivesTheBitsOfTheLayerForItsExperts) {
  const LayerSpec spec{.experts = 7, .weight = DType::f4_e2m1, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  const MoeProblem problem = test::problem_of(spec, 2, 5);
  std::int64_t experts = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const ExpertSlice slice = *plan_slice(
        weights.experts[0], 7, {.split = {.tensor_ranks = 1, .expert_ranks = 3, .rank = rank}}, "");
    EXPECT_EQ(slice.first_expert, experts);
    experts += slice.experts;
    Call call = test::random_call(problem, 5, 9);
    for (auto& id : call.ids) {
      id = static_cast<std::int32_t>(slice.first_expert + id % slice.experts);
    }
    const std::vector<float> whole = outputs(problem, weights, call);
    call.expert_map.assign(7, -1);
    for (std::int64_t e = 0; e < slice.experts; ++e) {
      call.expert_map[static_cast<std::size_t>(slice.first_expert + e)] =
          static_cast<std::int32_t>(e);
    }
    EXPECT_EQ(outputs(problem_of(problem, slice), sliced(weights, slice), call), whole);
  }
  EXPECT_EQ(experts, 7);
}

TEST(ExpertSlice, RefusesRanksThatGetNothingAndSaysHowManyThereCanBe) {
  const LayerSpec spec{.intermediate_size = 80, .weight = DType::f4_e2m1, .activation = {}};
  const ExpertWeights expert = test::random_weights(spec).experts[0];
  const auto text = [&](const PrepareSplit& split, Dealing dealing = Dealing::whole_units) {
    const auto slice = plan_slice(expert, 4, {.split = split, .dealing = dealing}, "layer 3");
    return slice ? std::string("fits") : slice.error().message();
  };
  EXPECT_EQ(text({.tensor_ranks = 5, .expert_ranks = 4, .rank = 19}), "fits");
  EXPECT_EQ(text({.tensor_ranks = 6, .expert_ranks = 1, .rank = 0}),
            "layer 3 tensor_ranks: 6 ranks can't share 80 intermediate features: they are 5 runs "
            "of 16, at least one a rank; legal: 1 to 5");
  EXPECT_EQ(
      text({.tensor_ranks = 1, .expert_ranks = 5, .rank = 0}),
      "layer 3 expert_ranks: 5 ranks can't share 4 experts: at least one a rank; legal: 1 to 4");
  EXPECT_EQ(text({.tensor_ranks = 2, .expert_ranks = 2, .rank = 4}),
            "layer 3 rank: rank 4, but 2 tensor ranks x 2 expert ranks are 4; legal: 0 to 3");
  EXPECT_NE(text({.tensor_ranks = 0, .expert_ranks = 1, .rank = 0}), "fits");
  // As engines cut; a group that is cut is for their backends to refuse.
  EXPECT_EQ(text({.tensor_ranks = 4, .expert_ranks = 2, .rank = 7}, Dealing::even), "fits");
  EXPECT_EQ(text({.tensor_ranks = 3, .expert_ranks = 1, .rank = 0}, Dealing::even),
            "layer 3 tensor_ranks: 3 ranks can't share 80 intermediate features equally: 80 / 3 = "
            "26.6667; legal, in whole runs of 16: 1, 5");
  EXPECT_EQ(text({.tensor_ranks = 1, .expert_ranks = 3, .rank = 0}, Dealing::even),
            "layer 3 expert_ranks: 3 ranks can't share 4 experts equally: 4 / 3 = 1.33333; legal: "
            "1, 2, 4");
}

struct Example {
  const char* name;
  QuantizedTensor tensor;
};

std::vector<std::uint8_t> random_bytes(std::size_t count, std::uint8_t low, std::uint8_t span) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<std::uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(low + random() % span);
  return bytes;
}

// u4 codes in groups of 32 with zero points, runs of columns or act-order.
QuantizedTensor int4(std::int64_t n, std::int64_t k, ActOrder order) {
  QuantizedTensor t;
  t.n = n;
  t.k = k;
  t.scheme.producer = Producer::gptq;
  t.scheme.weight = DType::u4;
  t.scheme.scale = ScaleSpec{.dtype = DType::f32, .granularity = {.rows = 1, .cols = 32}};
  t.scheme.zero_points = true;
  t.scheme.act_order = order;
  const auto cells = static_cast<std::size_t>(n * (k / 32));
  t.codes = test::owned_tensor(DType::u4, {n, k},
                               random_bytes(static_cast<std::size_t>(n * k / 2), 0, 255));
  std::vector<float> scales(cells);
  for (std::size_t i = 0; i < cells; ++i) scales[i] = 0.01F * static_cast<float>(i + 1);
  t.scales = test::owned_tensor(DType::f32, {n, k / 32}, std::move(scales));
  t.zero_points = test::owned_tensor(DType::u8, {n, k / 32}, random_bytes(cells, 0, 16));
  if (order == ActOrder::group) {
    std::vector<std::int32_t> groups(static_cast<std::size_t>(k));
    for (std::size_t j = 0; j < groups.size(); ++j) {
      groups[j] = static_cast<std::int32_t>(j * 7 % static_cast<std::size_t>(k / 32));
    }
    t.g_idx = test::owned_tensor(DType::i32, {k}, std::move(groups));
  }
  return t;
}

QuantizedTensor fp8_blocks(std::int64_t n, std::int64_t k) {
  QuantizedTensor t;
  t.n = n;
  t.k = k;
  t.scheme.producer = Producer::fp8;
  t.scheme.weight = DType::f8_e4m3;
  t.scheme.scale = ScaleSpec{.dtype = DType::f32, .granularity = {.rows = 128, .cols = 128}};
  t.codes = test::owned_tensor(DType::f8_e4m3, {n, k},
                               random_bytes(static_cast<std::size_t>(n * k), 0x20, 0x30));
  const std::int64_t rows = (n + 127) / 128;
  const std::int64_t cols = (k + 127) / 128;
  std::vector<float> scales(static_cast<std::size_t>(rows * cols));
  std::iota(scales.begin(), scales.end(), 1.0F);
  t.scales = test::owned_tensor(DType::f32, {rows, cols}, std::move(scales));
  return t;
}

std::vector<float> values(const QuantizedTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.n * tensor.k));
  const auto done = dequantize_rows(tensor, 0, out);
  EXPECT_TRUE(done) << done.error().message();
  return out;
}

TEST(SliceColumns, KeepsTheValueOfEveryColumnInEveryScheme) {
  const LayerSpec f4{
      .hidden_size = 32, .intermediate_size = 160, .weight = DType::f4_e2m1, .activation = {}};
  const LayerSpec plain{
      .hidden_size = 32, .intermediate_size = 160, .weight = DType::bf16, .activation = {}};
  const std::vector<Example> examples{
      {"NVFP4", test::random_weights(f4).experts[0].down},
      {"bf16", test::random_weights(plain).experts[0].down},
      {"u4 in groups", int4(6, 160, ActOrder::none)},
      {"u4 in act-order", int4(6, 160, ActOrder::group)},
      {"e4m3 in blocks", fp8_blocks(200, 320)},
  };
  for (const Example& example : examples) {
    const QuantizedTensor& whole = example.tensor;
    ASSERT_TRUE(check_quantized(whole)) << example.name;
    const std::vector<float> all = values(whole);
    const std::int64_t unit = std::lcm(column_unit(whole), std::int64_t{16});  // some will do
    for (std::int64_t first = 0; first < whole.k; first += unit) {
      for (std::int64_t end = first + unit; end - unit < whole.k; end += unit) {
        const std::int64_t count = std::min(end, whole.k) - first;
        const auto part = slice_columns(whole, first, count);
        ASSERT_TRUE(part) << example.name << ": " << part.error().message();
        ASSERT_TRUE(check_quantized(*part)) << example.name;
        const std::vector<float> got = values(*part);
        for (std::int64_t i = 0; i < whole.n; ++i) {
          for (std::int64_t j = 0; j < count; ++j) {
            ASSERT_EQ(got[static_cast<std::size_t>(i * count + j)],
                      all[static_cast<std::size_t>(i * whole.k + first + j)])
                << example.name << " row " << i << " column " << first + j;
          }
        }
      }
    }
  }
}

TEST(SliceColumns, RefusesACutInsideAGroup) {
  const auto part = slice_columns(int4(4, 64, ActOrder::none), 16, 32);
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().message(), "columns [16, 48) of 64, expected multiples of 32");
}

TEST(SliceExpert, NamesTheMatrixThatCanNotBeCut) {
  ExpertWeights expert;
  expert.up = int4(256, 32, ActOrder::none);
  expert.down = int4(4, 256, ActOrder::none);
  const ExpertSlice slice{.experts = 1, .all_experts = 1, .features = 48, .all_features = 256};
  const std::string where = "model.layers.3.mlp.experts expert 5";
  const auto part = slice_expert(expert, slice, where);
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().message(),
            where + " down: columns [0, 48) of 256, expected multiples of 32");
}

// Two columns of a part may be in any of the 8 groups.
TEST(SliceColumns, ActOrderKeepsItsSchemeAndAllScales) {
  const QuantizedTensor whole = int4(4, 256, ActOrder::group);
  for (const std::int64_t count : {2, 30, 32, 96, 254}) {
    const auto part = slice_columns(whole, 2, count);
    ASSERT_TRUE(part) << part.error().message();
    EXPECT_TRUE(part->scheme == whole.scheme);
    EXPECT_EQ(part->scales.view.shape, (Shape{4, 8}));
    EXPECT_EQ(part->scales.view.bytes.data(), whole.scales.view.bytes.data());
    EXPECT_EQ(part->zero_points.view.bytes.size(), 32U);
    ASSERT_TRUE(check_quantized(*part));
  }
  // Part of a part.
  const auto again = slice_columns(*slice_columns(whole, 64, 128), 32, 64);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(values(*again), values(*slice_columns(whole, 96, 64)));
}

TEST(SliceColumns, APartOfActOrderThatPointsNowhereIsRefused) {
  QuantizedTensor part = *slice_columns(int4(4, 256, ActOrder::group), 0, 64);
  std::vector<std::int32_t> groups(64, 7);
  groups[5] = 8;
  part.g_idx = test::owned_tensor(DType::i32, {64}, groups);
  EXPECT_EQ(check_quantized(part).error().what, "g_idx[5] is 8, expected 0 to 7");
  part.scales.view.shape = {4, 9};
  EXPECT_EQ(check_quantized(part).error().what, "scales of 128 bytes, expected 144");
  part.scales.view.shape = {32, 1};
  part.scales.view.bytes = part.scales.view.bytes.first(16);
  part.zero_points.view.bytes = part.zero_points.view.bytes.first(4);
  EXPECT_EQ(check_quantized(part).error().what,
            "scales of 1 groups, expected at least 2 for 64 columns in groups of 32");
}

// Whole layers whose three matrices are in act-order, also of groups that no rank has columns of.
TEST(ExpertSlice, ActOrderOutputsOfAllTensorRanksAddUpToTheLayer) {
  for (const std::int64_t inner : {64, 160}) {
    const LayerSpec spec{
        .experts = 2, .hidden_size = 64, .intermediate_size = inner, .activation = {}};
    MoeWeights weights = test::random_weights(spec);
    for (ExpertWeights& expert : weights.experts) {
      expert.gate = int4(inner, 64, ActOrder::group);
      expert.up = int4(inner, 64, ActOrder::group);
      expert.down = int4(64, inner, ActOrder::group);
    }
    MoeProblem problem = test::problem_of(spec, 2, 5);
    problem.gate_up = weights.experts[0].up.scheme;
    problem.down = weights.experts[0].down.scheme;
    problem.activation_dtype = DType::f32;
    const Call call = test::random_call(problem, 5, 3);
    const MoeReferenceResult whole = test::expected(problem, weights, call);
    for (const int ranks : {2, 3, 7}) {
      std::vector<double> sum(whole.out.size());
      std::vector<double> want(whole.out.size());
      std::vector<double> bound(whole.out.size());
      for (int rank = 0; rank < ranks; ++rank) {
        const ExpertSlice slice =
            *plan_slice(weights.experts[0], 2,
                        {.split = {.tensor_ranks = ranks, .expert_ranks = 1, .rank = rank}}, "");
        const MoeWeights part = sliced(weights, slice);
        const MoeProblem of_part = problem_of(problem, slice);
        const std::vector<float> out = outputs(of_part, part, call, "reference");
        const MoeReferenceResult reference = test::expected(of_part, part, call);
        const auto rounding = test::rounding_bound(of_part, part, test::input_of(call), reference);
        for (std::size_t i = 0; i < out.size(); ++i) {
          sum[i] += out[i];
          want[i] += reference.out[i];
          bound[i] += (*rounding)[i];
        }
      }
      for (std::size_t i = 0; i < sum.size(); ++i) {
        EXPECT_NEAR(want[i], whole.out[i], 1e-13 * std::abs(whole.out[i]) + 1e-13);
        ASSERT_LE(std::abs(sum[i] - whole.out[i]), bound[i] + 1e-12) << inner << " over " << ranks;
      }
    }
  }
}

// The sum over ranks of a rank's columns times its share of x is the whole product, in double.
TEST(SliceColumns, ProductsOfAllRanksAddUpToTheWholeProduct) {
  constexpr std::int64_t n = 6;
  constexpr std::int64_t k = 320;
  for (const ActOrder order : {ActOrder::group, ActOrder::none}) {
    const QuantizedTensor whole = int4(n, k, order);
    const std::vector<float> all = values(whole);
    std::mt19937 random(11);
    std::vector<double> x(k);
    for (double& value : x) value = static_cast<double>(random() % 2001) / 1000.0 - 1.0;
    for (const int ranks : {2, 3, 5, 7}) {
      std::vector<double> sum(n);
      std::vector<double> want(n);
      const Cut cut{.size = k, .unit = column_unit(whole), .ranks = ranks};
      for (int rank = 0; rank < ranks; ++rank) {
        const CutPart share = part_of(cut, rank);
        const std::int64_t count = share.end - share.begin;
        const auto part = slice_columns(whole, share.begin, count);
        ASSERT_TRUE(part) << part.error().message();
        const std::vector<float> got = values(*part);
        for (std::int64_t i = 0; i < n; ++i) {
          for (std::int64_t j = 0; j < count; ++j) {
            const double of_x = x[static_cast<std::size_t>(share.begin + j)];
            sum[static_cast<std::size_t>(i)] += got[static_cast<std::size_t>(i * count + j)] * of_x;
            want[static_cast<std::size_t>(i)] +=
                all[static_cast<std::size_t>(i * k + share.begin + j)] * of_x;
          }
        }
      }
      EXPECT_EQ(sum, want) << ranks;  // the same terms in the same order
    }
  }
}

}  // namespace
}  // namespace fewbit
