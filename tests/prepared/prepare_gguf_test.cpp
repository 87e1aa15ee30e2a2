// SPDX-License-Identifier: Apache-2.0
// Models in GGUF files, prepared: blocks with codes and scales apart where that changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "checkpoint/gguf_writer.hpp"
#include "checkpoint/scratch_folder.hpp"
#include "fewbit/prepare.hpp"
#include "prepared/manifest.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t experts = 3;

class PrepareGguf : public testing::Test {
 protected:
  void add(const std::string& name, const char* type, Shape shape) {
    specs_.push_back({.name = name, .type = *find_gguf_type(type), .shape = std::move(shape)});
  }
  void add_layer(int number, const char* type) {
    const std::int64_t hidden = hidden_;
    const std::int64_t inner = inner_;
    const std::string block = "blk." + std::to_string(number) + ".";
    add(block + "ffn_gate_exps.weight", type, {experts, inner, hidden});
    add(block + "ffn_up_exps.weight", type, {experts, inner, hidden});
    add(block + "ffn_down_exps.weight", type, {experts, hidden, inner});
    add(block + "ffn_gate_inp.weight", "F32", {experts, hidden});
    add(block + "attn_q.weight", "Q8_0", {32, hidden});
  }
  std::vector<GgufPair> pairs() const {
    const std::string words[] = {"a", "bc"};
    std::vector<GgufPair> all{gguf_pair("general.architecture", architecture_),
                              gguf_array("words", std::span<const std::string>(words))};
    const auto number = [&](const char* key, std::int64_t value) {
      all.push_back(gguf_pair(architecture_ + "." + key, static_cast<std::uint32_t>(value)));
    };
    number("embedding_length", hidden_);
    number("block_count", 2);
    number("expert_count", experts);
    number("expert_feed_forward_length", inner_);
    if (with_top_k_) number("expert_used_count", 2);
    return all;
  }
  // Random codes; every scale is a small positive number.
  void write() {
    fs::create_directories(folder_ / "source");
    auto writer = GgufWriter::create(folder_ / "source" / "model.gguf", pairs(), specs_, options_);
    ASSERT_TRUE(writer) << writer.error().message();
    std::mt19937 random(2);
    for (const GgufTensorSpec& spec : specs_) {
      std::int64_t count = 1;
      for (const std::int64_t extent : spec.shape) count *= extent;
      std::vector<std::byte> bytes(
          static_cast<std::size_t>(count / spec.type.elements * spec.type.bytes));
      for (auto& byte : bytes) byte = static_cast<std::byte>(random() & 0x3FU);
      ASSERT_TRUE(writer->write(spec.name, bytes));
    }
    const auto done = writer->finish();
    ASSERT_TRUE(done) << done.error().message();
  }
  Checkpoint source() const { return *Checkpoint::open(folder_ / "source"); }
  Result<PrepareReport> prepare(PrepareOptions options = {}) const {
    options.verify = true;
    const auto pool = *make_thread_pool(2);
    return prepare_checkpoint(source(), folder_ / "out", options, *pool);
  }
  void expect_refused(const std::string& text, const PrepareOptions& options = {}) const {
    const auto refused = prepare(options);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message().find(text), std::string::npos) << refused.error().message();
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);
  }

  ScratchFolder folder_;
  std::vector<GgufTensorSpec> specs_;
  GgufWriterOptions options_;
  std::string architecture_ = "qwen3moe";
  std::int64_t hidden_ = 64;
  std::int64_t inner_ = 128;
  bool with_top_k_ = true;
};

TEST_F(PrepareGguf, EveryBlockTypeWithAnExactFormIsPreparedAndVerified) {
  add_layer(0, "NVFP4");
  add("blk.0.ffn_up_exps.scale", "F32", {experts});
  add_layer(1, "Q8_0");
  add("token_embd.weight", "Q4_0", {8, hidden_});
  options_.alignment = 128;
  write();
  const auto report = prepare();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->verified->experts, 2 * experts);
  const auto model = PreparedModel::open(folder_ / "out");
  ASSERT_TRUE(model) << model.error().message();
  const auto& layers = model->manifest().layers;
  EXPECT_TRUE(layers[0].backend.starts_with("cpu_")) << layers[0].backend;
  EXPECT_EQ(layers[0].problem.where, "blk.0");
  EXPECT_TRUE(layers[1].backend.starts_with("cpu_")) << layers[1].backend;
  EXPECT_EQ(layers[1].problem.gate_up.weight, DType::i8);
  EXPECT_EQ(layers[1].problem.top_k, 2);
  for (const int layer : {0, 1}) {
    const auto opened = model->layer(layer, DType::bf16, 4, *detect_cpu(), {});
    EXPECT_TRUE(opened) << opened.error().message();
  }
}

// Rows of 256: the sizes that K blocks have.
TEST_F(PrepareGguf, BlocksThatAreKeptAsTheyAreArePreparedAndVerified) {
  hidden_ = inner_ = 256;
  add_layer(0, "Q4_K");
  add_layer(1, "Q6_K");
  write();
  const auto report = prepare();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->verified->experts, 2 * experts);
  const auto model = PreparedModel::open(folder_ / "out");
  ASSERT_TRUE(model) << model.error().message();
  for (const int layer : {0, 1}) {
    const auto& planned = model->manifest().layers[static_cast<std::size_t>(layer)];
    EXPECT_EQ(planned.problem.gate_up.ggml_type, layer == 0 ? 12 : 14);
    EXPECT_TRUE(planned.backend.starts_with("cpu_")) << planned.backend;
    const auto opened = model->layer(layer, DType::bf16, 4, *detect_cpu(), {});
    EXPECT_TRUE(opened) << opened.error().message();
  }
}

TEST_F(PrepareGguf, TernaryBlocksArePreparedAndVerified) {
  hidden_ = inner_ = 256;
  add_layer(0, "Q2_0");
  add_layer(1, "TQ2_0");
  write();
  const auto report = prepare();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->verified->experts, 2 * experts);
  const auto model = PreparedModel::open(folder_ / "out");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->manifest().layers[1].problem.gate_up.weight, DType::u2);
}

TEST_F(PrepareGguf, TheRestStaysAGgufFileWithAllItsPairs) {
  add_layer(0, "Q4_0");
  add_layer(1, "MXFP4");
  options_.max_part_bytes = 4096;
  write();
  ASSERT_GT(source().shards().size(), 1U);
  const auto report = prepare();
  ASSERT_TRUE(report) << report.error().message();
  const Checkpoint from = source();
  const Checkpoint rest = *Checkpoint::open(folder_ / "out");
  EXPECT_EQ(rest.shards().size(), 1U);
  EXPECT_EQ(rest.tensors().size(), 4U);
  for (const TensorInfo& info : rest.tensors()) {
    const TensorInfo& other = *from.find(info.name);
    EXPECT_EQ(info.blocks.has_value(), other.blocks.has_value());
    EXPECT_TRUE(std::ranges::equal(rest.tensor(info).view.bytes, from.tensor(other).view.bytes));
  }
  for (const GgufMetadata::Entry& entry : from.gguf_metadata()->entries()) {
    const GgufValue* value = rest.gguf_metadata()->find(entry.key);
    const bool split = entry.key.starts_with("split.");
    ASSERT_EQ(value == nullptr, split) << entry.key;
    if (split) continue;
    EXPECT_EQ(value->text(), entry.value.text());
  }
}

TEST_F(PrepareGguf, OtherEnginesKernelsTakeTheSameForm) {
  add_layer(0, "Q4_0");
  add_layer(1, "Q8_0");
  write();
  PrepareOptions options;
  options.backend = "marlin";
  options.device = *describe_device("sm_90");
  expect_refused("needs hidden_size % 128 = 0, has 64", options);
  options.backend = "xpu_int4";
  options.device = *describe_device("xpu");
  expect_refused("blk.1: backend xpu_int4 can't run it: weight: needs", options);
}

TEST_F(PrepareGguf, BlocksWithoutAnExactFormAreRefusedByName) {
  add_layer(0, "Q4_0");
  add_layer(1, "Q5_0");
  write();
  expect_refused("blk.1: reference is not preparable: GGUF Q5_0 has no form with codes and scales");
}

TEST_F(PrepareGguf, AnArchitectureWhoseExpertsAreNotKnownIsRefused) {
  architecture_ = "novel";
  add_layer(0, "Q4_0");
  add_layer(1, "Q4_0");
  write();
  expect_refused("experts of architecture \"novel\": their function is not known");
}

TEST_F(PrepareGguf, AMissingKeyIsNamed) {
  with_top_k_ = false;
  add_layer(0, "Q4_0");
  add_layer(1, "Q4_0");
  write();
  expect_refused("model.gguf: expert_used_count: expected an integer, found nothing");
}

}  // namespace
}  // namespace fewbit
