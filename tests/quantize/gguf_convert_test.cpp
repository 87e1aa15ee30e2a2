// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "canonical/gguf_blocks.hpp"
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

}  // namespace
}  // namespace fewbit
