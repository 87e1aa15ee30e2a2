// SPDX-License-Identifier: Apache-2.0
#include "canonical/gguf_matrix.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "canonical/gguf_blocks.hpp"
#include "checkpoint/small_gguf.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

std::vector<std::uint8_t> pattern(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
  return bytes;
}

Result<QuantizedTensor> canonical(const SmallGguf& model, std::string_view name,
                                  std::int64_t expert = -1) {
  const Checkpoint checkpoint = model.open();
  const auto identified = identify(checkpoint);
  EXPECT_TRUE(identified);
  const Module* module = identified->find(name);
  EXPECT_NE(module, nullptr) << name;
  return canonicalize(checkpoint, *module, expert);
}

std::vector<float> all_rows(const QuantizedTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.n * tensor.k));
  const auto done = dequantize_rows(tensor, 0, values);
  EXPECT_TRUE(done) << (done ? "" : done.error().message());
  return values;
}

// NVFP4 [2, 4, 64] for two experts, scale bytes 0x38 (1.0), codes that differ by expert and row.
SmallGguf two_experts(const std::string& factor_name, const std::vector<float>& factors) {
  std::vector<std::uint8_t> blocks;
  for (int row = 0; row < 8; ++row) {
    blocks.insert(blocks.end(), 4, 0x38);
    blocks.insert(blocks.end(), 32, static_cast<std::uint8_t>(row % 8 * 0x11));
  }
  SmallGguf model;
  model.add("blk.0.ffn_up_exps.weight", "NVFP4", {2, 4, 64}, blocks);
  if (!factors.empty()) {
    model.add_f32(factor_name, {static_cast<std::int64_t>(factors.size())}, factors);
  }
  return model;
}

TEST(GgufMatrix, StackedExpertsAreSlicedAndTheirFactorsApplied) {
  const float e2m1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  struct Case {
    std::string name;
    std::vector<float> factors;
  };
  for (const Case& c : {Case{"", {}}, Case{"blk.0.ffn_up_exps.scale", {0.25F}},
                        Case{"blk.0.ffn_up_exps.scale", {3, 0.5F}},
                        Case{"blk.0.ffn_up_exps.weight.scale", {3, 0.5F}}}) {
    for (std::size_t expert = 0; expert < 2; ++expert) {
      const auto tensor = canonical(two_experts(c.name, c.factors), "blk.0.ffn_up_exps",
                                    static_cast<std::int64_t>(expert));
      ASSERT_TRUE(tensor) << tensor.error().message();
      EXPECT_EQ(tensor->n, 4);
      EXPECT_EQ(tensor->k, 64);
      const float factor = c.factors.empty() ? 1 : c.factors[c.factors.size() == 1 ? 0 : expert];
      const std::vector<float> values = all_rows(*tensor);
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i], e2m1[4 * expert + i / 64] * factor) << i;
      }
    }
  }
}

TEST(GgufMatrix, RowsAreTheBlocksOfTheFile) {
  for (const std::string_view name : {"Q4_0", "Q8_0", "Q3_K", "TQ1_0", "Q2_0 (128)"}) {
    const GgufType& type = *find_gguf_type(name);
    const auto bytes = pattern(static_cast<std::size_t>(512 / type.elements * type.bytes) * 3);
    SmallGguf model;
    model.add("blk.0.ffn_up.weight", type, {3, 512}, bytes);
    const auto tensor = canonical(model, "blk.0.ffn_up");
    ASSERT_TRUE(tensor) << tensor.error().message();
    std::vector<float> want(3 * 512);
    ASSERT_TRUE(decode_gguf_blocks(type, std::as_bytes(std::span(bytes)), want));
    std::vector<float> row(512);
    for (std::int64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(dequantize_rows(*tensor, i, row));
      for (std::size_t j = 0; j < 512; ++j) {
        const float expected = want[static_cast<std::size_t>(i) * 512 + j];
        EXPECT_TRUE(row[j] == expected || (row[j] != row[j] && expected != expected)) << name;
      }
    }
    EXPECT_FALSE(dequantize_rows(*tensor, 3, row));
  }
}

TEST(GgufMatrix, ALayersExpertsAreGathered) {
  SmallGguf model;
  model.pair(gguf_pair("general.architecture", std::string("qwen3moe")));
  model.add("blk.0.ffn_gate_up_exps.weight", "Q4_0", {2, 64, 32}, pattern(2 * 64 * 18));
  model.add("blk.0.ffn_down_exps.weight", "Q8_0", {2, 32, 32}, pattern(2 * 32 * 34));
  const Checkpoint checkpoint = model.open();
  const auto identified = identify(checkpoint);
  ASSERT_TRUE(identified);
  const auto moe = gather_moe(checkpoint, *identified, 0);
  ASSERT_TRUE(moe) << moe.error().message();
  ASSERT_EQ(moe->experts.size(), 2U);
  EXPECT_EQ(moe->hidden_size, 32);
  EXPECT_EQ(moe->intermediate_size, 32);
  // Gate rows come first, up rows second.
  const auto bytes = pattern(2 * 64 * 18);
  const auto blocks = std::as_bytes(std::span(bytes)).subspan(64 * 18, 64 * 18);
  std::vector<float> both(64 * 32);
  ASSERT_TRUE(decode_gguf_blocks(*find_gguf_type("Q4_0"), blocks, both));
  const std::vector<float> gate = all_rows(*moe->experts[1].gate);
  const std::vector<float> up = all_rows(moe->experts[1].up);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    EXPECT_TRUE(gate[i] == both[i] || both[i] != both[i]);
    EXPECT_TRUE(up[i] == both[gate.size() + i] || both[gate.size() + i] != both[gate.size() + i]);
  }
}

TEST(GgufMatrix, WrongFactorsAreRefused) {
  struct Case {
    std::vector<float> factors;
    std::string message;
  };
  for (const Case& c : {Case{{1, 2, 3}, "shape is [3], expected [1] or [2]"},
                        Case{{__builtin_nanf("")}, "factor is nan, expected a finite number"}}) {
    const auto tensor =
        canonical(two_experts("blk.0.ffn_up_exps.scale", c.factors), "blk.0.ffn_up_exps", 0);
    ASSERT_FALSE(tensor);
    EXPECT_THAT(tensor.error().message(), HasSubstr("blk.0.ffn_up_exps.scale: " + c.message));
  }
}

TEST(GgufMatrix, SizesAreCheckedAgainstTheBlocks) {
  const std::vector<std::byte> bytes(3 * 18);
  QuantizedTensor tensor;
  tensor.n = 3;
  tensor.k = 32;
  tensor.scheme.producer = Producer::gguf;
  tensor.scheme.ggml_type = 2;
  tensor.codes.view.bytes = bytes;
  EXPECT_TRUE(check_quantized(tensor));
  tensor.n = 4;
  EXPECT_THAT(check_quantized(tensor).error().what,
              HasSubstr("codes of 54 bytes, expected 72 for Q4_0 [4, 32]"));
  tensor.k = 33;
  EXPECT_THAT(check_quantized(tensor).error().what, HasSubstr("rows of 33 elements"));
  tensor.scheme.ggml_type = 99;
  EXPECT_THAT(check_quantized(tensor).error().what, HasSubstr("type 99 has no known blocks"));
  std::vector<float> row(33);
  EXPECT_FALSE(dequantize_rows(tensor, 0, row));
}

}  // namespace
}  // namespace fewbit
