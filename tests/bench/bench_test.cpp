// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "bench/limit_track.hpp"
#include "bench/measure.hpp"
#include "paths.hpp"

namespace fewbit::bench {
namespace {

using ::testing::HasSubstr;

class ShapesFile : public ::testing::Test {
 protected:
  Result<std::vector<LayerShape>> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_shapes(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_ = ::testing::TempDir() + "/shapes_" +
                      ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".txt";
};

TEST_F(ShapesFile, LinesAreShapesAndCommentsAreNot) {
  const auto shapes = read(
      "# name …\n\nsmall 256 128 16 4 silu renormalize nvfp4  # as trained\n"
      "plain 7 5 1 1 gelu other bf16,f32\n");
  ASSERT_TRUE(shapes) << shapes.error().message();
  ASSERT_EQ(shapes->size(), 3U);
  const LayerShape& s = shapes->front();
  EXPECT_EQ(s.name, "small");
  EXPECT_EQ(s.hidden_size, 256);
  EXPECT_EQ(s.intermediate_size, 128);
  EXPECT_EQ(s.num_experts, 16);
  EXPECT_EQ(s.top_k, 4);
  EXPECT_EQ((*shapes)[1].name, "plain");
  EXPECT_EQ((*shapes)[1].scheme, "bf16");
  EXPECT_EQ((*shapes)[1].activation.kind, Activation::gelu);
  EXPECT_EQ(shapes->back().name, "plain/f32");
  EXPECT_EQ(shapes->back().scheme, "f32");
}

TEST_F(ShapesFile, ABadLineIsNamedWithItsNumberAndText) {
  const struct {
    const char* line;
    const char* message;
  } cases[] = {{"small 256 128 16 4", "no activation"},
               {"small 256 128 16 4 nvfp4", "\"nvfp4\""},
               {"small 256 128 16 four silu other nvfp4", "top_k is \"four\""},
               {"small 256 0 16 4 silu other nvfp4", "intermediate is \"0\""},
               {"small 256 128 3 4 silu other nvfp4", "top_k 4 of 3 experts"},
               {"small 256 128 16 4 silu other nvfp4 more", "unknown option \"more\""}};
  for (const auto& [line, message] : cases) {
    const auto shapes = read(std::string("ok 16 16 1 1 silu other nvfp4\n") + line + "\n");
    ASSERT_FALSE(shapes) << line;
    EXPECT_EQ(shapes.error().code, ErrorCode::corrupt);
    EXPECT_THAT(shapes.error().what, HasSubstr(message));
    EXPECT_EQ(shapes.error().where, path_ + " line 2");
  }
  const auto absent = read_shapes("/nonexistent/shapes.txt");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::not_found);
  EXPECT_EQ(absent.error().where, "/nonexistent/shapes.txt");
}

TEST(NamedShapes, AreReadable) {
  const auto shapes = read_shapes(tests::source_dir() / "tests/problems/moe_layers.txt");
  ASSERT_TRUE(shapes) << shapes.error().message();
  EXPECT_GE(shapes->size(), 6U);
}

TEST_F(ShapesFile, TheFirstKindOfWeightsIsFoundByItsNameToo) {
  const auto shapes = read("Wide 256 128 16 4 silu renormalize nvfp4,mxfp4\n");
  ASSERT_TRUE(shapes) << shapes.error().message();
  for (const char* name : {"Wide", "wide/nvfp4", "WIDE/NVFP4"}) {
    const auto found = find_shape(*shapes, name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->name, "Wide");
    EXPECT_EQ(found->scheme, "nvfp4");
  }
  EXPECT_EQ(find_shape(*shapes, "wide/mxfp4")->scheme, "mxfp4");
  EXPECT_THAT(find_shape(*shapes, "wide/nvfp5").error().what, HasSubstr("mean Wide/nvfp4?"));
  EXPECT_THAT(find_shape(*shapes, "other").error().what, HasSubstr("known: Wide, Wide/mxfp4"));
}

// Every expert has every token.
LayerShape small_layer(std::int64_t experts, const char* scheme) {
  return {.name = "small",
          .hidden_size = 64,
          .intermediate_size = 32,
          .num_experts = experts,
          .top_k = static_cast<int>(experts),
          .scheme = scheme};
}

TEST(BenchLayer, CountsBytesAndOperationsOfTheExpertsThatACallUses) {
  const LayerShape shape = small_layer(4, "nvfp4");
  LayerBenchOptions options;
  options.tokens = {1, 3};
  options.resident_bytes = 1 << 16;
  options.seconds = 0.001;
  const auto device = detect_cpu();
  ASSERT_TRUE(device);
  const auto bench = bench_layer(shape, *device, options, serial_executor());
  ASSERT_TRUE(bench) << bench.error().message();
  const double expert_bytes = 3 * 64 * 32 * 9 / 16.0;
  EXPECT_EQ(bench->copies, 5);  // of 13824 bytes, to hold 65536
  ASSERT_EQ(bench->timings.size(), 2U);
  for (const LayerTiming& t : bench->timings) {
    EXPECT_GE(t.calls, 5);
    EXPECT_GT(t.seconds, 0);
    EXPECT_DOUBLE_EQ(t.weight_bytes, 4 * expert_bytes);
    EXPECT_DOUBLE_EQ(t.flops, static_cast<double>(t.tokens) * 4 * 3 * 2 * 64 * 32);
  }
  EXPECT_GT(bench->limits.read_bytes_per_second, 0);
  EXPECT_GT(bench->limits.fma_flops_per_second, 0);
  const std::string text = bench_text(*bench);
  EXPECT_THAT(text, HasSubstr("small (64, 32, 4, 4) nvfp4 on " + bench->backend));
}

TEST(NamedShapes, DenseLayersHaveEveryKindThatExpertsAreMeasuredIn) {
  const auto experts = read_shapes(tests::source_dir() / "tests/problems/moe_layers.txt");
  const auto dense = read_shapes(tests::source_dir() / "tests/problems/linear_layers.txt");
  ASSERT_TRUE(experts);
  ASSERT_TRUE(dense) << dense.error().message();
  for (const LinearSize size : {LinearSize{4096, 4096}, LinearSize{14336, 4096}}) {
    const std::string model =
        "dense-" + std::to_string(size.out_features) + "x" + std::to_string(size.in_features);
    for (const LayerShape& layer : *experts) {
      const auto shape = find_shape(*dense, model + "/" + layer.scheme);
      ASSERT_TRUE(shape) << model << " " << layer.scheme;
      EXPECT_EQ(shape->linear->out_features, size.out_features);
      EXPECT_EQ(shape->linear->in_features, size.in_features);
    }
  }
}

// In small: every kind of the list, bytes and operations counted.
TEST(BenchLinear, RunsEveryKindOfTheDenseLayers) {
  const auto shapes = read_shapes(tests::source_dir() / "tests/problems/linear_layers.txt");
  ASSERT_TRUE(shapes);
  LayerBenchOptions options;
  options.tokens = {1, 3};
  options.resident_bytes = 1 << 19;
  options.seconds = 0.001;
  options.limits = [] { return MachineLimits{.threads = 1, .read_bytes_per_second = 1e15}; };
  for (LayerShape shape : *shapes) {
    if (!shape.name.starts_with("dense-4096x4096")) continue;
    shape.linear = LinearSize{.out_features = 512, .in_features = 256};
    const auto bench = bench_layer(shape, *detect_cpu(), options, serial_executor());
    ASSERT_TRUE(bench) << shape.name << ": " << bench.error().message();
    EXPECT_TRUE(bench->backend.starts_with("cpu_")) << shape.name << " on " << bench->backend;
    const std::uint64_t bytes = bench->weight_bytes();
    EXPECT_GE(bytes, 512U * 256U / 8) << shape.name;
    EXPECT_EQ(static_cast<std::uint64_t>(bench->copies),
              (options.resident_bytes + bytes - 1) / bytes)
        << shape.name;
    ASSERT_EQ(bench->timings.size(), 2U);
    for (const LayerTiming& timing : bench->timings) {
      EXPECT_DOUBLE_EQ(timing.weight_bytes, static_cast<double>(bytes));
      EXPECT_DOUBLE_EQ(timing.flops, static_cast<double>(timing.tokens) * 2 * 512 * 256);
    }
    EXPECT_THAT(bench_text(*bench), HasSubstr(" (512 x 256) " + shape.scheme + " on cpu_"));
  }
}

TEST_F(ShapesFile, DenseLayersStandBesideOthers) {
  const auto shapes = read("wide 64 32 nvfp4,bf16  # dense\nmoe 64 32 4 2 silu other bf16\n");
  ASSERT_TRUE(shapes) << shapes.error().message();
  EXPECT_EQ(names_of(*shapes), "moe, wide, wide/bf16");
  EXPECT_FALSE(shapes->front().linear);
  EXPECT_EQ(shapes->back().linear->in_features, 32);
  for (const auto& [line, message] :
       {std::pair{"wide 0 32 nvfp4", "out_features is \"0\", expected 1 to 2147483647"},
        {"wide 64 x nvfp4", "in_features is \"x\""},
        {"wide 64 32 nvfp5", "nvfp5"}}) {
    const auto wrong = read(std::string("ok 16 16 bf16\n") + line + "\n");
    ASSERT_FALSE(wrong) << line;
    EXPECT_EQ(wrong.error().code, ErrorCode::corrupt);
    EXPECT_THAT(wrong.error().what, HasSubstr(message));
    EXPECT_EQ(wrong.error().where, path_ + " line 2");
  }
}

// Limits as a test says, one after the other.
LayerBench measured_with(std::vector<MachineLimits> limits) {
  const LayerShape shape = small_layer(2, "bf16");
  LayerBenchOptions options;
  options.tokens = {1, 2};
  options.resident_bytes = 1;
  options.seconds = 0.001;
  std::size_t next = 0;
  options.limits = [&]() -> Result<MachineLimits> { return limits.at(next++); };
  const auto bench = bench_layer(shape, *detect_cpu(), options, serial_executor());
  EXPECT_TRUE(bench) << bench.error().message();
  EXPECT_EQ(next, limits.size());  // before, after, and after each number of tokens
  return *bench;
}

constexpr MachineLimits far{
    .threads = 1, .read_bytes_per_second = 1e15, .fma_flops_per_second = 1e18};

TEST(BenchLimits, TheBestOfAllMeasurementsIsTheLimit) {
  MachineLimits low = far;
  low.read_bytes_per_second *= 0.9;
  MachineLimits high = far;
  high.fma_flops_per_second *= 1.1;
  const LayerBench bench = measured_with({low, far, high});
  EXPECT_EQ(bench.limits.read_bytes_per_second, far.read_bytes_per_second);
  EXPECT_EQ(bench.limits.fma_flops_per_second, high.fma_flops_per_second);
  EXPECT_EQ(bench.lowest.read_bytes_per_second, low.read_bytes_per_second);
  EXPECT_EQ(bench.lowest.fma_flops_per_second, far.fma_flops_per_second);
  EXPECT_EQ(bench.limit_measurements, 3);
  EXPECT_EQ(limit_note(bench), "");
}

TEST(BenchLimits, OnesThatMovedByAQuarterAreSaidToBeDisturbed) {
  MachineLimits low = far;
  low.read_bytes_per_second *= 0.74;
  const LayerBench bench = measured_with({low, far, far});
  EXPECT_EQ(limit_note(bench),
            "the limits moved while they were measured, read 7.4e+05 to 1e+06 GB/s: the limits "
            "were disturbed, measure again on a quiet machine");
  EXPECT_THAT(bench_text(bench), HasSubstr("\n  note: the limits moved"));
}

TEST(BenchLimits, SharesAboveOneAreNamed) {
  LayerBench bench = measured_with({far, far, far});
  for (LayerTiming& timing : bench.timings) {
    timing.seconds = 1;
    timing.weight_bytes = 1.25e15;
    timing.flops = 1e18;
  }
  EXPECT_EQ(limit_note(bench),
            "2 shares are above 1, up to 1.25: the limits were disturbed, measure again on a quiet "
            "machine");
  bench.timings.front().weight_bytes = 1e15;  // the limit itself is none above it
  EXPECT_THAT(limit_note(bench), HasSubstr("1 share is above 1"));
  bench.timings.pop_back();
  EXPECT_EQ(limit_note(bench), "");
}

TEST_F(ShapesFile, LayersThatAreNotMeasuredAreAskableAllTheSame) {
  const auto shapes = read("flat 64 32 4 2 relu2 other bf16\n");
  ASSERT_TRUE(shapes) << shapes.error().message();
  const auto bench = bench_layer(shapes->front(), *detect_cpu(), {}, serial_executor());
  ASSERT_FALSE(bench);
  EXPECT_EQ(bench.error().what, "experts without a gate are not measured");
}

TEST_F(ShapesFile, EverySchemeAndBiasesAreMeasured) {
  const auto shapes = read(
      "biased 64 64 2 1 swigluoai other mxfp4 bias\n"
      "ints 128 128 2 1 silu other gptq-int4-g64-actorder,awq-int4-g128,ct-int8-channel\n"
      "floats 128 128 2 1 silu other fp8-block,fp8-tensor,mxfp8,nf3\n"
      "blocks 256 256 2 1 silu other "
      "gguf-q2_0,gguf-pq2_0,gguf-tq2_0,gguf-q4_0,gguf-q8_0,gguf-q4_k,gguf-q6_k\n");
  ASSERT_TRUE(shapes) << shapes.error().message();
  LayerBenchOptions options;
  options.tokens = {2};
  options.resident_bytes = 1;
  options.seconds = 0.001;
  for (const LayerShape& shape : *shapes) {
    const auto bench = bench_layer(shape, *detect_cpu(), options, serial_executor());
    ASSERT_TRUE(bench) << shape.name << ": " << bench.error().message();
    EXPECT_TRUE(bench->backend.starts_with("cpu_")) << shape.name << " on " << bench->backend;
    EXPECT_GT(bench->timings.front().weight_bytes, 0) << shape.name;
  }
}

TEST(BenchLayer, AnUnknownSchemeIsRefusedByName) {
  const LayerShape shape{.name = "odd",
                         .hidden_size = 64,
                         .intermediate_size = 32,
                         .num_experts = 1,
                         .top_k = 1,
                         .scheme = "nvfp5"};
  const auto bench = bench_layer(shape, *detect_cpu(), {}, serial_executor());
  ASSERT_FALSE(bench);
  EXPECT_THAT(bench.error().what, HasSubstr("nvfp5"));
}

}  // namespace
}  // namespace fewbit::bench
