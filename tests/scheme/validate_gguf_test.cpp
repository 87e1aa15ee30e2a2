// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/small_gguf.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

std::vector<Finding> findings_of(const SmallGguf& model, Depth depth = Depth::scales) {
  const Checkpoint checkpoint = model.open();
  const auto identified = identify(checkpoint);
  EXPECT_TRUE(identified);
  return validate(checkpoint, *identified, depth);
}

std::vector<std::string> rules_of(const std::vector<Finding>& findings) {
  std::vector<std::string> rules;
  rules.reserve(findings.size());
  for (const Finding& finding : findings) rules.push_back(finding.rule);
  return rules;
}

// A block of zeros with `bytes` at `at`.
std::vector<std::uint8_t> block(const GgufType& type, std::size_t at,
                                const std::vector<std::uint8_t>& bytes) {
  std::vector<std::uint8_t> out(static_cast<std::size_t>(type.bytes), 0);
  std::copy(bytes.begin(), bytes.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
  return out;
}

struct ScalePlace {
  std::string_view type;
  std::vector<std::size_t> at;  // of every f16 scale
};

const ScalePlace f16_scales[] = {
    {"Q4_0", {0}},      {"Q4_1", {0, 2}}, {"Q5_0", {0}},    {"Q5_1", {0, 2}}, {"Q8_0", {0}},
    {"Q2_K", {80, 82}}, {"Q3_K", {108}},  {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}}, {"Q6_K", {208}},
    {"IQ4_NL", {0}},    {"IQ4_XS", {0}},  {"TQ1_0", {52}},  {"TQ2_0", {64}},  {"Q1_0", {0}},
    {"IQ1_S", {0}},     {"IQ2_XXS", {0}}, {"IQ2_XS", {0}},  {"IQ2_S", {0}},   {"IQ3_XXS", {0}},
    {"IQ3_S", {0}},     {"Q2_0", {0}},    {"PQ2_0", {0}},   {"PTQ1_0", {26}},
};

TEST(ValidateGguf, AScaleThatIsNoNumberIsFoundInEveryType) {
  for (const ScalePlace& place : f16_scales) {
    const GgufType& type = *find_gguf_type(place.type);
    for (const std::size_t at : place.at) {
      for (const std::vector<std::uint8_t>& scale :
           {std::vector<std::uint8_t>{0x00, 0x7C}, {0x01, 0xFE}}) {
        SmallGguf model;
        model.add("blk.0.ffn_up.weight", type, {1, 1024}, block(type, at, scale));
        const auto findings = findings_of(model);
        ASSERT_FALSE(findings.empty()) << place.type << " at " << at;
        EXPECT_EQ(findings[0].rule, "scale-nan") << place.type;
        EXPECT_EQ(findings[0].where, "blk.0.ffn_up.weight");
        EXPECT_THAT(findings[0].found, HasSubstr("block scales are NaN or infinite"));
        EXPECT_TRUE(rules_of(findings_of(model, Depth::headers)).empty());
      }
      SmallGguf fine;
      fine.add("blk.0.ffn_up.weight", type, {1, 1024}, block(type, at, {0xFF, 0x7B}));
      // A number, though no plausible one.
      EXPECT_EQ(rules_of(findings_of(fine)), (std::vector<std::string>{"scale-direction"}))
          << place.type;
    }
  }
}

TEST(ValidateGguf, TheScaleSpreadOverIq1MIsFound) {
  const GgufType& type = *find_gguf_type("IQ1_M");
  SmallGguf infinite;  // 0x7C00, a nibble in the top of each u16
  infinite.add("blk.0.ffn_up.weight", type, {1, 256},
               block(type, 48, {0, 0x0F, 0, 0x0F, 0, 0xCF, 0, 0x7F}));
  ASSERT_EQ(rules_of(findings_of(infinite)), (std::vector<std::string>{"scale-nan"}));
  SmallGguf fine;  // 0x7BF0
  fine.add("blk.0.ffn_up.weight", type, {1, 256},
           block(type, 48, {0, 0x0F, 0, 0xFF, 0, 0xBF, 0, 0x7F}));
  EXPECT_EQ(rules_of(findings_of(fine)), (std::vector<std::string>{"scale-direction"}));
}

TEST(ValidateGguf, ScaleBytesOutsideTheirTypeAreCounted) {
  const GgufType& mxfp4 = *find_gguf_type("MXFP4");
  SmallGguf nan;
  nan.add("blk.0.ffn_up.weight", mxfp4, {2, 32}, block(mxfp4, 0, {255}));
  EXPECT_THAT(findings_of(nan)[0].found, HasSubstr("2 of 2 block scales are NaN"));

  const GgufType& nvfp4 = *find_gguf_type("NVFP4");
  SmallGguf signs;
  signs.add("blk.0.ffn_up.weight", nvfp4, {1, 64}, block(nvfp4, 0, {0x38, 0x7F, 0xB8, 0x38}));
  signs.add_f32("blk.0.ffn_up.scale", {1}, {1});
  const auto findings = findings_of(signs);
  EXPECT_EQ(rules_of(findings), (std::vector<std::string>{"scale-negative", "scale-zero"}));
  EXPECT_THAT(findings[0].found, HasSubstr("1 of 4 block scales"));
  EXPECT_THAT(findings[1].found, HasSubstr("1 of 4 block scales are the byte 0x7f"));
}

TEST(ValidateGguf, AnErasedTensorAndAMissingFactorAreSaid) {
  SmallGguf model;
  model.add("blk.0.ffn_up.weight", "NVFP4", {1, 64});
  EXPECT_EQ(rules_of(findings_of(model)),
            (std::vector<std::string>{"gguf-factor-missing", "scale-zero"}));
}

TEST(ValidateGguf, SizesAreComparedWithTheMetadata) {
  const auto model = [](std::uint32_t experts, std::uint32_t hidden, std::uint32_t inner,
                        std::uint32_t layers) {
    SmallGguf out;
    out.pair(gguf_pair("general.architecture", std::string("qwen3moe")));
    out.pair(gguf_pair("qwen3moe.expert_count", experts));
    out.pair(gguf_pair("qwen3moe.embedding_length", hidden));
    out.pair(gguf_pair("qwen3moe.expert_feed_forward_length", inner));
    out.pair(gguf_pair("qwen3moe.block_count", layers));
    out.add("blk.0.ffn_gate_inp.weight", "F32", {4, 64});
    out.add("blk.0.ffn_up_exps.weight", "Q8_0", {4, 96, 64},
            block(*find_gguf_type("Q8_0"), 0, {1}));
    return out;
  };
  EXPECT_TRUE(findings_of(model(4, 64, 96, 1)).empty());
  const auto experts = findings_of(model(8, 64, 96, 1));
  ASSERT_FALSE(experts.empty());
  EXPECT_EQ(experts[0].rule, "config-experts");
  EXPECT_EQ(experts[0].found, "4 experts");
  EXPECT_EQ(experts[0].expected, "8 by the file's metadata");
  EXPECT_EQ(findings_of(model(4, 128, 96, 1))[0].rule, "config-size");
  EXPECT_EQ(findings_of(model(4, 64, 128, 1))[0].found, "[96, 64]");
  EXPECT_EQ(findings_of(model(4, 64, 96, 3))[0].rule, "layers-missing");
}

}  // namespace
}  // namespace fewbit
