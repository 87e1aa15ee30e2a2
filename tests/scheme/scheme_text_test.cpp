// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fewbit/scheme.hpp"

namespace fewbit {
namespace {

TEST(SchemeText, SaysWhatTheBitsAre) {
  EXPECT_EQ(scheme_text(plain_scheme(DType::bf16)), "bf16");
  EXPECT_EQ(scheme_text(nvfp4_scheme()),
            "ModelOpt NVFP4 (e2m1, e4m3 scale a group of 16, f32 global)");
  Scheme gptq;
  gptq.producer = Producer::gptq;
  gptq.weight = DType::u4;
  gptq.scale = ScaleSpec{DType::f16, Granularity{1, 128}, false, ScaleDirection::multiply};
  gptq.zero_points = true;
  EXPECT_EQ(scheme_text(gptq), "GPTQ INT4 (u4, f16 scale a group of 128, zero points)");
  Scheme block;
  block.producer = Producer::fp8;
  block.weight = DType::f8_e4m3;
  block.scale = ScaleSpec{DType::f32, Granularity{128, 128}, false, ScaleDirection::multiply};
  EXPECT_EQ(scheme_text(block), "FP8 (e4m3, f32 scale a block of 128x128)");
}

TEST(SchemeText, PlainAndQuantizedAreNotTheSameScheme) {
  EXPECT_FALSE(plain_scheme(DType::bf16).quantized());
  EXPECT_TRUE(nvfp4_scheme().quantized());
  EXPECT_NE(nvfp4_scheme(), plain_scheme(DType::f4_e2m1));
}

TEST(ActivationName, TakesTheFieldsSpellings) {
  EXPECT_EQ(*activation_from_name("silu"), Activation::silu);
  EXPECT_EQ(*activation_from_name("swiglu"), Activation::silu);
  EXPECT_EQ(*activation_from_name("swigluoai_uninterleave"), Activation::swigluoai);
  EXPECT_EQ(*activation_from_name("gelu"), Activation::gelu);
  EXPECT_EQ(*activation_from_name("gelu_pytorch_tanh"), Activation::gelu_tanh);
  EXPECT_EQ(*activation_from_name("relu2"), Activation::relu2);
  for (const Activation one : {Activation::silu, Activation::swigluoai, Activation::relu2,
                               Activation::gelu, Activation::gelu_tanh}) {
    EXPECT_EQ(*activation_from_name(activation_name(one)), one);
    EXPECT_EQ(activation_gated(one), one != Activation::relu2);
  }
}

TEST(ActivationName, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto found = activation_from_name("mish");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::unsupported);
  EXPECT_THAT(found.error().what,
              testing::AllOf(testing::HasSubstr("mish"), testing::HasSubstr("relu2"),
                             testing::HasSubstr("swigluoai")));
}

}  // namespace
}  // namespace fewbit
