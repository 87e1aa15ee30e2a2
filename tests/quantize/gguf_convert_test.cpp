// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "canonical/gguf_blocks.hpp"
#include "checkpoint/gguf_metadata.hpp"
#include "checkpoint/scratch_folder.hpp"
#include "checkpoint/small_gguf.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/quantize.hpp"

namespace fewbit {
namespace {

std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values(tensor.view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.view.bytes.data(), tensor.view.bytes.size());
  return values;
}

// Stacked experts keep their shape, factors are applied and gone, plain tensors are copied.
TEST(GgufConvert, EveryBlockTypeBecomesPlainValues) {
  SmallGguf model;
  model.pair(gguf_pair("general.architecture", std::string("qwen3moe")));
  model.add("blk.0.ffn_up_exps.weight", "NVFP4", {2, 4, 64}, std::vector<std::uint8_t>(36, 0x35));
  model.add_f32("blk.0.ffn_up_exps.scale", {2}, {2, 0.5F});
  std::vector<std::uint8_t> block = {0x66, 0x2e};  // d = 0.1
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<std::uint8_t>(0x1f + 37 * i));
  model.add("blk.0.ffn_down_exps.weight", "Q4_0", {2, 8, 32}, block);
  model.add_f32("blk.0.ffn_gate_inp.weight", {2, 64}, {1, 2, 3, 4});
  const Checkpoint source = model.open();
  const ScratchFolder folder;
  DequantizeOptions options;
  options.dtype = DType::f32;
  const auto report = dequantize_checkpoint(source, folder / "out", options, serial_executor());
  ASSERT_TRUE(report) << report.error().message();
  const auto plain = Checkpoint::open(folder / "out");
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_EQ(plain->tensors().size(), 3U);
  for (const char* name : {"blk.0.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight"}) {
    const TensorInfo& stored = *source.find(name);
    const GgufType& type = *find_gguf_type(stored.blocks->ggml_type, stored.blocks->block_elements);
    std::vector<float> want(static_cast<std::size_t>(*shape_elements(stored.blocks->shape)));
    ASSERT_TRUE(decode_gguf_blocks(type, source.tensor(stored).view.bytes, want));
    if (type.name == "NVFP4") {
      for (std::size_t i = 0; i < want.size(); ++i) want[i] *= i < want.size() / 2 ? 2.0F : 0.5F;
    }
    const auto tensor = plain->tensor(name);
    ASSERT_TRUE(tensor) << name;
    EXPECT_EQ(tensor->view.shape, stored.blocks->shape);
    EXPECT_EQ(floats(*tensor), want) << name;
  }
  const auto router = plain->tensor("blk.0.ffn_gate_inp.weight");
  ASSERT_TRUE(router);
  EXPECT_EQ(floats(*router), floats(source.tensor(*source.find("blk.0.ffn_gate_inp.weight"))));
}

// One file and parts: types, values, the source's pairs but for those of its blocks.
TEST(GgufConvert, AGgufFileKeepsMetadataAndNames) {
  SmallGguf model;
  model.pair(gguf_pair("general.architecture", std::string("qwen3moe")));
  model.pair(gguf_pair("general.file_type", std::uint32_t{2}));
  model.pair(gguf_pair("general.quantization_version", std::uint32_t{2}));
  model.pair(gguf_pair("tokenizer.x", std::string("y")));
  model.add("blk.0.ffn_up_exps.weight", "NVFP4", {2, 4, 64}, std::vector<std::uint8_t>(36, 0x35));
  model.add_f32("blk.0.ffn_up_exps.scale", {2}, {2, 0.5F});
  model.add("blk.0.ffn_down_exps.weight", "Q8_0", {2, 8, 32}, {0x66, 0x2e, 7, 9});
  model.add_f32("blk.0.ffn_gate_inp.weight", {2, 64}, {1, 2, 3, 4});
  const Checkpoint source = model.open();
  const ScratchFolder folder;
  DequantizeOptions options;
  options.dtype = DType::f32;
  const auto in_folder =
      dequantize_checkpoint(source, folder / "folder", options, serial_executor());
  ASSERT_TRUE(in_folder) << in_folder.error().message();
  EXPECT_TRUE(in_folder->gguf_files.empty());
  const Checkpoint want = *Checkpoint::open(folder / "folder");
  for (const bool parts : {false, true}) {
    options.max_part_bytes = parts ? std::optional<std::uint64_t>(64) : std::nullopt;
    const std::string name = parts ? "parts" : "one";
    const auto report =
        dequantize_checkpoint(source, folder / (name + ".gguf"), options, serial_executor());
    ASSERT_TRUE(report) << report.error().message();
    const auto made =
        Checkpoint::open(folder / (name + (parts ? "-00001-of-00003.gguf" : ".gguf")));
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_EQ(made->shards().size(), parts ? 3U : 1U);
    EXPECT_TRUE(std::ranges::equal(report->gguf_files, made->shards()));
    ASSERT_EQ(made->tensors().size(), want.tensors().size());
    for (const TensorInfo& info : want.tensors()) {
      const TensorInfo* found = made->find(info.name);
      ASSERT_NE(found, nullptr) << info.name;
      EXPECT_EQ(found->shape, info.shape);
      EXPECT_EQ(floats(made->tensor(*found)), floats(want.tensor(info))) << info.name;
    }
    const GgufMetadata& pairs = *made->gguf_metadata();
    EXPECT_EQ(pairs.architecture(), "qwen3moe");
    EXPECT_EQ(pairs.find("general.file_type")->as_int64(), 0);
    EXPECT_EQ(pairs.find("general.quantization_version"), nullptr);
    EXPECT_EQ(pairs.find("tokenizer.x")->as_string(), "y");
  }
}

TEST(GgufConvert, AGgufFileThatCanNotBeLeavesNothing) {
  SmallGguf model;
  model.pair(gguf_pair("general.architecture", std::string("llama")));
  model.add("blk.0.ffn_up.weight", "Q8_0", {8, 32}, {0x00, 0x7e, 7, 9});  // d is NaN
  const Checkpoint source = model.open();
  const ScratchFolder folder;
  DequantizeOptions options;
  const auto report =
      dequantize_checkpoint(source, folder / "out.gguf", options, serial_executor());
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::corrupt);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace fewbit
