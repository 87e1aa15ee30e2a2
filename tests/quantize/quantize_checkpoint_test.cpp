// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "checkpoint/json.hpp"
#include "paths.hpp"
#include "quantize/quantize_case.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string expert0 = "model.layers.0.mlp.experts.0.";

std::vector<float> values(const QuantizedTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.n * tensor.k));
  EXPECT_TRUE(dequantize_rows(tensor, 0, out));
  return out;
}

TEST_F(QuantizeCheckpoint, ExpertsBecomeNvfp4AndTheRestStaysAsItIs) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  small.file("tokenizer.json", "{\"a\": 1}").file("notes.txt", "text").file("old.bin", "weights");
  const auto report = quantize(small);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->quantized_tensors, 6);
  EXPECT_EQ(report->kept_tensors, 11);
  EXPECT_EQ(report->erased_blocks, 0);

  const Checkpoint source = small.open();
  const Checkpoint checkpoint = result();
  const Identified identified = *identify(checkpoint);
  EXPECT_THAT(identified.findings, IsEmpty());
  for (const Module& module : identified.modules) {
    EXPECT_EQ(module.scheme, module.expert >= 0 ? nvfp4_scheme() : plain_scheme(DType::bf16))
        << module.name;
    if (module.expert >= 0) continue;
    const Tensor before = *source.tensor(module.name + ".weight");
    const Tensor after = *checkpoint.tensor(module.name + ".weight");
    EXPECT_TRUE(std::equal(before.view.bytes.begin(), before.view.bytes.end(),
                           after.view.bytes.begin(), after.view.bytes.end()))
        << module.name;
  }
  EXPECT_EQ(checkpoint.total_bytes(), report->output_bytes);
  EXPECT_EQ(source.total_bytes(), report->source_bytes);
  EXPECT_EQ(file_content(output_ / "tokenizer.json"), "{\"a\": 1}");
  EXPECT_EQ(file_content(output_ / "notes.txt"), "text");
  EXPECT_FALSE(fs::exists(output_ / "old.bin"));
}

TEST_F(QuantizeCheckpoint, TheErrorIsThatOfTheDequantizedWeights) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  const auto report = quantize(small);
  ASSERT_TRUE(report) << report.error().message();
  const Checkpoint source = small.open();
  const Checkpoint checkpoint = result();
  const MoeWeights before = *gather_moe(source, *identify(source), 0);
  const MoeWeights after = *gather_moe(checkpoint, *identify(checkpoint), 0);
  double error = 0;
  double norm = 0;
  const auto add = [&](const QuantizedTensor& a, const QuantizedTensor& b) {
    const std::vector<float> w = values(a);
    const std::vector<float> q = values(b);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double d = static_cast<double>(w[i]) - static_cast<double>(q[i]);
      error += d * d;
      norm += static_cast<double>(w[i]) * static_cast<double>(w[i]);
    }
  };
  for (std::size_t e = 0; e < before.experts.size(); ++e) {
    add(*before.experts[e].gate, *after.experts[e].gate);
    add(before.experts[e].up, after.experts[e].up);
    add(before.experts[e].down, after.experts[e].down);
  }
  EXPECT_GT(report->relative_error, 0.01);
  EXPECT_NEAR(report->relative_error, std::sqrt(error / norm), 1e-12);
}

TEST_F(QuantizeCheckpoint, StreamedMatricesAreThoseOfOneCall) {
  // Longer than one piece of rows, with a piece that is not full.
  const std::int64_t n = 300;
  const std::int64_t k = 1024;
  SmallCheckpoint small;
  small.add_bf16(expert0 + "up_proj.weight", {n, k}, SmallCheckpoint::ramp(0.003F));
  small.add_bf16(expert0 + "down_proj.weight", {k, 16}, SmallCheckpoint::ramp(0.01F));
  ASSERT_TRUE(quantize(small));
  const Checkpoint source = small.open();
  const QuantizedTensor plain = *canonicalize(source, *identify(source)->find(expert0 + "up_proj"));
  const Nvfp4Matrix whole = *quantize_nvfp4(n, k, values(plain));
  const Checkpoint checkpoint = result();
  const QuantizedTensor streamed =
      *canonicalize(checkpoint, *identify(checkpoint)->find(expert0 + "up_proj"));
  EXPECT_EQ(streamed.global_scale, whole.global_scale);
  const auto equal = [](std::span<const std::byte> a, const std::vector<std::byte>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  EXPECT_TRUE(equal(streamed.codes.view.bytes, whole.codes));
  EXPECT_TRUE(equal(streamed.scales.view.bytes, whole.scales));
}

TEST_F(QuantizeCheckpoint, BothConfigPlacesAreWrittenAndOtherKeysKept) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  ASSERT_TRUE(quantize(small));
  const Json config = *Json::parse(file_content(output_ / "config.json"), "config.json");
  const Json before = *Json::parse(SmallCheckpoint::config(""), "before");
  ASSERT_EQ(config.as_object()->size(), before.as_object()->size() + 1);
  for (const auto& [key, value] : *before.as_object()) {
    ASSERT_NE(config.find(key), nullptr) << key;
    EXPECT_EQ(config.find(key)->dump(), value.dump()) << key;
  }
  const Json& block = *config.find("quantization_config");
  EXPECT_EQ(*block.find("quant_method")->as_string(), "modelopt");
  EXPECT_EQ(*block.find("quant_algo")->as_string(), "W4A16_NVFP4");
  EXPECT_EQ(block.find("group_size")->as_int64(), 16);
  EXPECT_EQ(*block.find("producer")->find("name")->as_string(), "fewbit");
  const std::string ignored = block.find("ignore")->dump();
  EXPECT_THAT(ignored, AllOf(HasSubstr("\"lm_head\""), HasSubstr("\"model.layers.0.mlp.gate\""),
                             HasSubstr("\"model.layers.0.self_attn.q_proj\""),
                             Not(HasSubstr("norm")), Not(HasSubstr("experts"))));
  const Json hf = *Json::parse(file_content(output_ / "hf_quant_config.json"), "hf");
  EXPECT_EQ(hf.find("quantization")->find("exclude_modules")->dump(), ignored);
  EXPECT_EQ(*hf.find("quantization")->find("quant_algo")->as_string(), "W4A16_NVFP4");
}

TEST_F(QuantizeCheckpoint, AttentionIsQuantizedWhenAsked) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  QuantizeOptions options;
  options.attention = true;
  const auto report = quantize(small, options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->quantized_tensors, 10);
  const Checkpoint checkpoint = result();
  const Identified identified = *identify(checkpoint);
  EXPECT_THAT(identified.findings, IsEmpty());
  EXPECT_EQ(identified.find(0, Role::o_proj)->scheme, nvfp4_scheme());
  EXPECT_EQ(identified.find(0, Role::router)->scheme, plain_scheme(DType::bf16));
}

float global_of(const Checkpoint& checkpoint, const std::string& module) {
  const auto tensor = canonicalize(checkpoint, *identify(checkpoint)->find(module));
  EXPECT_TRUE(tensor) << tensor.error().message();
  return tensor->global_scale;
}

TEST_F(QuantizeCheckpoint, PartsThatEnginesFuseShareTheGlobalScaleOfTheirLargestWeight) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  const std::string attention = "model.layers.0.self_attn.";
  small.add_bf16(expert0 + "gate_proj.weight", {16, 32}, {1.0F, -2.0F});
  small.add_bf16(expert0 + "up_proj.weight", {16, 32}, {-5.25F, 1.0F});
  small.add_bf16(attention + "k_proj.weight", {16, 32}, {7.0F, 1.0F});
  QuantizeOptions options;
  options.attention = true;
  ASSERT_TRUE(quantize(small, options));
  const Checkpoint checkpoint = result();
  const auto scale = [](float largest) { return largest / 2688.0F; };
  EXPECT_EQ(global_of(checkpoint, expert0 + "gate_proj"), scale(5.25F));
  EXPECT_EQ(global_of(checkpoint, expert0 + "up_proj"), scale(5.25F));
  EXPECT_NE(global_of(checkpoint, expert0 + "down_proj"), scale(5.25F));
  const std::string expert1 = "model.layers.0.mlp.experts.1.";
  EXPECT_NE(global_of(checkpoint, expert1 + "up_proj"), scale(5.25F));
  EXPECT_EQ(global_of(checkpoint, expert1 + "up_proj"),
            global_of(checkpoint, expert1 + "gate_proj"));
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    EXPECT_EQ(global_of(checkpoint, attention + part), scale(7.0F)) << part;
  }
  EXPECT_NE(global_of(checkpoint, attention + "o_proj"), scale(7.0F));
  EXPECT_THAT(validate(checkpoint, *identify(checkpoint)), IsEmpty());
}

TEST_F(QuantizeCheckpoint, FusedExpertsStayFusedWithAGlobalScaleEach) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  for (const char* e : {"0.", "1."}) {
    for (const char* role : {"gate_proj", "up_proj", "down_proj"}) {
      small.remove(std::string("model.layers.0.mlp.experts.") + e + role + ".weight");
    }
  }
  const std::string experts = "model.layers.0.mlp.experts.";
  small.add_bf16(experts + "gate_up_proj", {2, 32, 32}, SmallCheckpoint::ramp(0.01F));
  small.add_bf16(experts + "down_proj", {2, 32, 16}, {1.0F, -2.0F, 0.5F});
  const auto report = quantize(small);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->quantized_tensors, 2);
  const Checkpoint checkpoint = result();
  EXPECT_EQ(checkpoint.find(experts + "gate_up_proj")->shape, (Shape{2, 32, 16}));
  EXPECT_EQ(checkpoint.find(experts + "gate_up_proj_weight_scale")->shape, (Shape{2, 32, 2}));
  EXPECT_EQ(checkpoint.find(experts + "gate_up_proj_weight_scale_2")->shape, Shape{2});
  const Checkpoint source = small.open();
  const auto before = gather_moe(source, *identify(source), 0);
  const auto after = gather_moe(checkpoint, *identify(checkpoint), 0);
  ASSERT_TRUE(before) << before.error().message();
  ASSERT_TRUE(after) << after.error().message();
  for (std::size_t e = 0; e < 2; ++e) {
    // 1, -2 and 0.5 are codes 3, -6 and 1.5 of one scale: nothing is lost.
    EXPECT_EQ(values(before->experts[e].down), values(after->experts[e].down)) << e;
  }
}

TEST_F(QuantizeCheckpoint, ResultsDoNotDependOnTheThreads) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  const auto serial = quantize(small);
  ASSERT_TRUE(serial);
  const auto pool = make_thread_pool(4);
  ASSERT_TRUE(pool);
  const fs::path other = folder_ / "threads";
  const auto parallel = quantize_checkpoint(small.open(), other, {}, **pool);
  ASSERT_TRUE(parallel);
  EXPECT_EQ(serial->relative_error, parallel->relative_error);
  EXPECT_EQ(file_content(output_ / "model.safetensors"), file_content(other / "model.safetensors"));
}

TEST_F(QuantizeCheckpoint, RefusalsLeaveNothingBehind) {
  struct Row {
    std::function<void(SmallCheckpoint&, QuantizeOptions&)> apply;
    ErrorCode code;
    const char* says;
  };
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<Row> rows = {
      {[](auto&, auto& o) { o.scheme = "nvfp5"; }, ErrorCode::unsupported, "nvfp4"},
      {[](auto&, auto& o) { o.experts = false; }, ErrorCode::not_found, "no matrix to quantize"},
      {[](auto& c, auto&) {
         c.add_bf16(expert0 + "up_proj.weight", {16, 24}, {1.0F});
       },
       ErrorCode::unsupported, "up_proj: matrix is [16, 24]"},
      {[inf](auto& c, auto&) {
         std::vector<float> bad(512, 1.0F);
         bad[32 * 3 + 5] = inf;
         c.add_bf16(expert0 + "up_proj.weight", {16, 32}, bad);
       },
       ErrorCode::corrupt, "up_proj.weight: weight [3, 5] is inf"},
      {[](auto& c, auto&) {
         c.add_bf16(expert0 + "up_proj.weight", {1, 16, 32}, {1.0F});
       },
       ErrorCode::unsupported, "up_proj.weight: weights are [1, 16, 32], expected a matrix"},
      {[](auto& c, auto&) {
         c.add_bf16(expert0 + "up_proj.weight", {32, 16}, {1.0F});
       },
       ErrorCode::inconsistent, "config-size: found [32, 16], expected [16, 32]"},
      {[](auto& c, auto&) { c.remove(expert0 + "up_proj.weight"); }, ErrorCode::inconsistent,
       "experts-missing: found 1 experts, without 0"},
      {[](auto& c, auto&) {
         std::vector<float> outlier(512, 1e-6F);
         outlier[7] = 1e6F;
         c.add_bf16(expert0 + "up_proj.weight", {16, 32}, outlier);
       },
       ErrorCode::corrupt, "up_proj.weight: 31 of 32 blocks with weights would become zero"},
      {[](auto& c, auto&) { c.add_nvfp4("model.layers.0.self_attn.q_proj", 32, 32); },
       ErrorCode::unsupported, "already quantized (ModelOpt)"},
      {[](auto&, auto& o) { o.progress = [](auto, auto) { return false; }; }, ErrorCode::cancelled,
       "stopped after "},
  };
  for (const Row& row : rows) {
    SmallCheckpoint small = SmallCheckpoint::bf16();
    QuantizeOptions options;
    row.apply(small, options);
    const auto report = quantize(small, options);
    ASSERT_FALSE(report) << row.says;
    EXPECT_STREQ(error_code_name(report.error().code), error_code_name(row.code));
    EXPECT_THAT(report.error().message(), HasSubstr(row.says));
    EXPECT_TRUE(fs::is_empty(folder_.path())) << row.says;
  }
}

TEST_F(QuantizeCheckpoint, AMatrixOfErasedBlocksIsWrittenOnlyWhenAllowedAndNamed) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  std::vector<float> outlier(512, 1e-6F);
  outlier[7] = 1e6F;
  small.add_bf16(expert0 + "up_proj.weight", {16, 32}, outlier);
  QuantizeOptions options;
  options.allow_erased = true;
  const auto report = quantize(small, options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->worst.name, expert0 + "up_proj.weight");
  EXPECT_DOUBLE_EQ(report->worst.erased_share, 31.0 / 32.0);
  // 31 blocks are lost whole; the outlier's own is nearly exact.
  EXPECT_NEAR(report->worst.block_error, 31.0 / 32.0, 0.002);
}

TEST_F(QuantizeCheckpoint, AnExistingOutputIsRefused) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  fs::create_directory(output_);
  const auto report = quantize(small);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), HasSubstr("exists"));
}

TEST_F(QuantizeCheckpoint, ProgressEndsAtTheWhole) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  std::vector<std::uint64_t> done;
  std::uint64_t whole = 0;
  QuantizeOptions options;
  options.progress = [&](std::uint64_t now, std::uint64_t total) {
    done.push_back(now);
    whole = total;
    return true;
  };
  ASSERT_TRUE(quantize(small, options));
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), whole);
  EXPECT_EQ(whole, small.open().total_bytes());
}

// A trained model, whose error independent code has computed.
TEST_F(QuantizeCheckpoint, DecodingRefusesWhatIsNotFinite) {
  struct Row {
    std::function<void(SmallCheckpoint&)> apply;
    DType dtype;
    ErrorCode code;
    std::vector<const char*> says;
  };
  const std::string up = expert0 + "up_proj";
  const std::vector<Row> rows = {
      {[&](SmallCheckpoint& c) {
         std::vector<std::uint8_t> scales(32, 0x38);
         scales[2 * 3 + 1] = 0x7F;
         c.add(up + ".weight_scale", DType::f8_e4m3, {16, 2}, scales);
       },
       DType::f32,
       ErrorCode::corrupt,
       {"up_proj.weight: value [3, 16] is NaN", "weight_scale [3, 1]"}},
      {[&](SmallCheckpoint& c) { c.add_f32(up + ".weight_scale_2", {}, {1e6F}); },
       DType::f16,
       ErrorCode::corrupt,
       {"value [0, 0] is 500000, expected a number that f16 can hold", "global scale 1000000"}},
      {[&](SmallCheckpoint& c) {
         for (const char* part : {".weight", ".weight_scale", ".weight_scale_2"}) {
           c.remove(up + part);
         }
       },
       DType::bf16,
       ErrorCode::inconsistent,
       {"experts-missing: found 1 experts, without 0"}},
  };
  for (const Row& row : rows) {
    SmallCheckpoint small = SmallCheckpoint::modelopt();
    row.apply(small);
    DequantizeOptions options;
    options.dtype = row.dtype;
    const auto report = dequantize_checkpoint(small.open(), output_, options, serial_executor());
    ASSERT_FALSE(report) << row.says.front();
    EXPECT_STREQ(error_code_name(report.error().code), error_code_name(row.code));
    for (const char* text : row.says) EXPECT_THAT(report.error().message(), HasSubstr(text));
    EXPECT_TRUE(fs::is_empty(folder_.path())) << row.says.front();
  }
}

TEST_F(QuantizeCheckpoint, ATrainedModelHasTheErrorOfIndependentCode) {
  const fs::path model = tests::vectors_dir() / "models" / "tiny-moe";
  if (!fs::exists(model / "rtn_reference.json"))
    GTEST_SKIP() << model << ", beside the project, is missing";
  const Json reference = *Json::parse(file_content(model / "rtn_reference.json"), "reference");
  const Json& nvfp4 = *reference.find("results")->find("nvfp4");
  const auto source = Checkpoint::open(model);
  ASSERT_TRUE(source) << source.error().message();
  const auto report = quantize_checkpoint(*source, output_, {}, serial_executor());
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->quantized_tensors, *nvfp4.find("tensors")->as_int64());
  EXPECT_NEAR(report->relative_error, *nvfp4.find("relative_error")->as_double(), 0.0005);
  const Checkpoint checkpoint = result();
  EXPECT_THAT(identify(checkpoint)->findings, IsEmpty());
}

}  // namespace
}  // namespace fewbit
