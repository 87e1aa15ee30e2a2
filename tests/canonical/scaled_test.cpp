// SPDX-License-Identifier: Apache-2.0
// FP8 modules from their tensors to the canonical form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fewbit/quantized.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr const char* up = "model.layers.0.mlp.up_proj";

Module module_of(const Checkpoint& checkpoint, const std::string& name) {
  Result<Identified> identified = identify(checkpoint);
  EXPECT_TRUE(identified) << identified.error().message();
  const Module* found = identified->find(name);
  EXPECT_NE(found, nullptr) << name;
  return *found;
}

std::vector<float> values_of(const QuantizedTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.n * tensor.k));
  const Result<void> done = dequantize_rows(tensor, 0, out);
  EXPECT_TRUE(done) << done.error().message();
  return out;
}

TEST(CanonicalizeScaled, MapsCodesAndScales) {
  SmallCheckpoint small;
  small.add(std::string(up) + ".weight", DType::f8_e4m3, {4, 8}, {0x38});
  small.add_f32(std::string(up) + ".weight_scale_inv", {1, 1}, {0.25F});
  const Checkpoint checkpoint = small.open();
  const auto tensor = canonicalize(checkpoint, module_of(checkpoint, up));
  ASSERT_TRUE(tensor) << tensor.error().message();
  EXPECT_EQ(tensor->codes.view.bytes.data(),
            checkpoint.tensor(std::string(up) + ".weight")->view.bytes.data());
  EXPECT_THAT(values_of(*tensor), Each(0.25F));
}

// Byte 120 is 2^-7 as a power of two, whatever type its container has.
TEST(CanonicalizeScaled, PowersOfTwoInEveryContainerMeanTheSame) {
  for (const DType container : {DType::f8_e8m0, DType::u8, DType::f32}) {
    SmallCheckpoint small;
    small.add(std::string(up) + ".weight", DType::f8_e4m3, {2, 64}, {0x38});
    if (container == DType::f32) {
      small.add_f32(std::string(up) + ".weight_scale", {2, 2},
                    {0.0078125F, 0.0078125F, 0.0078125F, 0.0078125F});
    } else {
      small.add(std::string(up) + ".weight_scale", container, {2, 2}, {120});
    }
    const Checkpoint checkpoint = small.open();
    const auto tensor = canonicalize(checkpoint, module_of(checkpoint, up));
    ASSERT_TRUE(tensor) << tensor.error().message();
    EXPECT_THAT(values_of(*tensor), Each(0.0078125F));
  }
}

TEST(CanonicalizeScaled, AnExpertOfAFusedTensorHasItsOwnGrid) {
  const std::string module = "model.layers.0.mlp.experts.down_proj";
  SmallCheckpoint small;
  small.add(module, DType::f8_e4m3, {2, 32, 16}, {0x38});
  small.add_f32(module + "_scale_inv", {2, 1, 1}, {0.5F, 4.0F});
  small.file("config.json", SmallCheckpoint::config(""));
  const Checkpoint checkpoint = small.open();
  const Module found = module_of(checkpoint, module);
  EXPECT_EQ(found.unreadable, "");
  const auto tensor = canonicalize(checkpoint, found, 1);
  ASSERT_TRUE(tensor) << tensor.error().message();
  EXPECT_THAT(values_of(*tensor), Each(4.0F));
}

// The module's description may be older than the file, so all is checked again.
TEST(CanonicalizeScaled, TensorsThatDoNotFitTheSchemeAreErrors) {
  SmallCheckpoint small;
  small.add(std::string(up) + ".weight", DType::f8_e4m3, {4, 8}, {0x38});
  small.add_f32(std::string(up) + ".weight_scale", {4, 1}, {1.0F, 1.0F, 1.0F, 1.0F});
  const Checkpoint checkpoint = small.open();
  const Module good = module_of(checkpoint, up);
  const auto error = [&](auto change) {
    Module module = good;
    change(module);
    const auto tensor = canonicalize(checkpoint, module);
    EXPECT_FALSE(tensor);
    return tensor ? std::string() : tensor.error().message();
  };
  EXPECT_THAT(error([](Module& m) { m.n = 5; }), HasSubstr("weight: shape is [4, 8], expected [5"));
  EXPECT_THAT(error([](Module& m) { m.scheme.weight = DType::f8_e5m2; }),
              HasSubstr("dtype is f8_e4m3, expected f8_e5m2"));
  EXPECT_THAT(error([](Module& m) { m.scheme.scale->dtype = DType::bf16; }),
              HasSubstr("weight_scale: dtype is f32, expected bf16"));
  EXPECT_THAT(error([](Module& m) {
                m.scheme.scale->granularity = {128, 128};
              }),
              HasSubstr("weight_scale: shape is [4, 1], expected [1, 1]"));
  EXPECT_THAT(error([](Module& m) { m.parts.pop_back(); }), HasSubstr("missing"));
  EXPECT_THAT(error([](Module& m) { m.scheme.scale->has_global = true; }),
              HasSubstr("weight_scale_2 is missing"));
  EXPECT_THAT(error([](Module& m) { m.scheme.pre_quant_scale = true; }),
              HasSubstr("pre_quant_scale is missing"));
}

}  // namespace
}  // namespace fewbit
