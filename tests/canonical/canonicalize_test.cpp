// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "fewbit/quantized.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::Each;
using testing::HasSubstr;

Result<QuantizedTensor> canonical(const Checkpoint& checkpoint, const std::string& module,
                                  std::int64_t expert = -1) {
  Result<Identified> identified = identify(checkpoint);
  EXPECT_TRUE(identified) << identified.error().message();
  const Module* found = identified->find(module);
  EXPECT_NE(found, nullptr) << module;
  return canonicalize(checkpoint, *found, expert);
}

std::vector<float> values_of(const QuantizedTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.n * tensor.k));
  const Result<void> done = dequantize_rows(tensor, 0, out);
  EXPECT_TRUE(done) << done.error().message();
  return out;
}

// 1.5 * (2 * 1/2048): an inverted factor would give 6144.
TEST(CanonicalizeNvfp4, TheGlobalScaleMultiplies) {
  for (const Shape& shape : {Shape{}, Shape{1}}) {
    SmallCheckpoint small;
    small.add("m.weight", DType::u8, {1, 8}, {0x33});
    small.add("m.weight_scale", DType::f8_e4m3, {1, 1}, {0x40});
    small.add_f32("m.weight_scale_2", shape, {1.0F / 2048.0F});
    const Checkpoint checkpoint = small.open();
    const auto tensor = canonical(checkpoint, "m");
    ASSERT_TRUE(tensor) << tensor.error().message();
    EXPECT_EQ(tensor->n, 1);
    EXPECT_EQ(tensor->k, 16);
    EXPECT_EQ(tensor->scheme, nvfp4_scheme());
    EXPECT_THAT(values_of(*tensor), Each(0.00146484375F));
  }
}

// Kernels of other engines are chosen by it.
TEST(CanonicalizeNvfp4, TheActivationsThatAreAskedForStayAskedFor) {
  const std::string module = "model.layers.0.mlp.experts.1.down_proj";
  const Checkpoint without = SmallCheckpoint::modelopt().open();
  EXPECT_EQ(canonical(without, module)->scheme.activation, std::nullopt);
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_f32(module + ".input_scale", {}, {1.0F});
  const Checkpoint with = small.open();
  const auto tensor = canonical(with, module);
  ASSERT_TRUE(tensor) << tensor.error().message();
  EXPECT_EQ(tensor->scheme.activation, DType::f4_e2m1);
}

TEST(CanonicalizeNvfp4, MapsAndNeverCopies) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  const Checkpoint checkpoint = small.open();
  const std::string module = "model.layers.0.mlp.experts.1.down_proj";
  const auto tensor = canonical(checkpoint, module);
  ASSERT_TRUE(tensor) << tensor.error().message();
  const Tensor weight = *checkpoint.tensor(module + ".weight");
  const Tensor scale = *checkpoint.tensor(module + ".weight_scale");
  EXPECT_EQ(tensor->codes.view.bytes.data(), weight.view.bytes.data());
  EXPECT_EQ(tensor->scales.view.bytes.data(), scale.view.bytes.data());
}

TEST(CanonicalizeNvfp4, AnExpertOfAFusedTensorIsASliceWithItsOwnGlobalScale) {
  SmallCheckpoint small;
  const std::string module = "model.layers.0.mlp.experts.gate_up_proj";
  std::vector<std::uint8_t> codes(std::size_t{2} * 4 * 8);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 7);
  small.add(module, DType::u8, {2, 4, 8}, codes);
  small.add(module + "_weight_scale", DType::f8_e4m3, {2, 4, 1},
            {0x38, 0x39, 0x3A, 0x3B, 0x40, 0x41, 0x42, 0x43});
  small.add_f32(module + "_weight_scale_2", {2}, {0.5F, 0.25F});
  const Checkpoint checkpoint = small.open();
  const auto tensor = canonical(checkpoint, module, 1);
  ASSERT_TRUE(tensor) << tensor.error().message();
  EXPECT_EQ(tensor->n, 4);
  EXPECT_EQ(tensor->k, 16);
  EXPECT_EQ(tensor->global_scale, 0.25F);
  EXPECT_EQ(tensor->codes.view.bytes.data(), checkpoint.tensor(module)->view.bytes.data() + 32);
  EXPECT_EQ(std::to_integer<int>(tensor->scales.view.bytes[3]), 0x43);

  for (const std::int64_t expert : {-1, 2}) {
    const auto outside = canonical(checkpoint, module, expert);
    ASSERT_FALSE(outside);
    EXPECT_THAT(outside.error().what, HasSubstr("expert " + std::to_string(expert)));
  }
}

TEST(CanonicalizePlain, SharesTheValues) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  const Checkpoint checkpoint = small.open();
  const auto tensor = canonical(checkpoint, "model.layers.0.mlp.gate");
  ASSERT_TRUE(tensor) << tensor.error().message();
  EXPECT_EQ(tensor->scheme, plain_scheme(DType::bf16));
  EXPECT_EQ(tensor->n, 2);
  EXPECT_EQ(tensor->k, 32);
  EXPECT_EQ(values_of(*tensor)[0], -0.5F);  // 0.01 * -50
}

struct Broken {
  const char* suffix;
  std::function<void(SmallCheckpoint&, const std::string&)> apply;
  ErrorCode code;
  const char* says;
};

TEST(CanonicalizeNvfp4, ErrorsNameTheTensorAndBothNumbers) {
  const std::string m = "model.layers.0.mlp.experts.0.up_proj";
  const std::vector<Broken> rows = {
      {".weight_scale", [](auto& c, const auto& n) { c.remove(n); }, ErrorCode::not_found,
       "up_proj.weight_scale is missing"},
      {".weight_scale_2", [](auto& c, const auto& n) { c.remove(n); }, ErrorCode::not_found,
       "up_proj.weight_scale_2 is missing"},
      {".weight_scale",
       [](auto& c, const auto& n) {
         c.add(n, DType::f8_e4m3, {16, 3}, {0x38});
       },
       ErrorCode::corrupt, "shape is [16, 3], expected [16, 2]"},
      {".weight_scale", [](auto& c, const auto& n) { c.add(n, DType::f8_e4m3, {32}, {0x38}); },
       ErrorCode::corrupt, "shape is [32], expected 2 dimensions"},
      {".weight_scale",
       [](auto& c, const auto& n) {
         c.add(n, DType::u8, {16, 2}, {0x38});
       },
       ErrorCode::corrupt, "dtype is u8, expected f8_e4m3"},
      {".weight",
       [](auto& c, const auto& n) {
         c.add(n, DType::i32, {16, 16});
       },
       ErrorCode::corrupt, "dtype is i32, expected u8"},
      {".weight_scale_2", [](auto& c, const auto& n) { c.add_f32(n, {2}, {1.0F}); },
       ErrorCode::corrupt, "shape is [2], expected [] or [1]"},
      {".weight_scale_2", [](auto& c, const auto& n) { c.add_bf16(n, {}, {1.0F}); },
       ErrorCode::corrupt, "dtype is bf16, expected f32"},
      {".weight_scale_2",
       [](auto& c, const auto& n) { c.add_f32(n, {}, {std::numeric_limits<float>::infinity()}); },
       ErrorCode::corrupt, "global scale is inf"},
      {".weight_scale_2", [](auto& c, const auto& n) { c.add_f32(n, {}, {-2.0F}); },
       ErrorCode::corrupt, "global scale is -2"},
  };
  for (const Broken& row : rows) {
    SmallCheckpoint small = SmallCheckpoint::modelopt();
    row.apply(small, m + row.suffix);
    const Checkpoint checkpoint = small.open();
    const auto tensor = canonical(checkpoint, m);
    ASSERT_FALSE(tensor) << row.says;
    EXPECT_STREQ(error_code_name(tensor.error().code), error_code_name(row.code));
    EXPECT_THAT(tensor.error().what, HasSubstr(row.says));
    EXPECT_THAT(tensor.error().where, HasSubstr(m));
  }
}

TEST(Canonicalize, AnUnreadableModuleSaysWhy) {
  SmallCheckpoint small;
  small.add("model.layers.0.mlp.up_proj.qweight", DType::i32, {2, 4, 16});
  small.add("model.layers.0.mlp.up_proj.scales", DType::f16, {2, 1, 16});
  small.add("model.layers.0.mlp.up_proj.g_idx", DType::i32, {32});
  const Checkpoint checkpoint = small.open();
  const auto tensor = canonical(checkpoint, "model.layers.0.mlp.up_proj");
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code, ErrorCode::unsupported);
  EXPECT_EQ(tensor.error().message(),
            "model.layers.0.mlp.up_proj: qweight [2, 4, 16] of stacked experts is not readable");
}

}  // namespace
}  // namespace fewbit
