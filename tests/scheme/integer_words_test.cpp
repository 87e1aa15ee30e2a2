// SPDX-License-Identifier: Apache-2.0
// GPTQ, AWQ and AutoRound use the same tensor names: shapes decide, then the config, else nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fewbit/scheme.hpp"
#include "scheme/identify_depth.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* up = "model.layers.0.mlp.experts.0.up_proj";

struct Shapes {
  Shape qweight;
  Shape qzeros;
  Shape scales;
  std::int64_t g_idx = 0;                         // columns; 0: no g_idx
  std::vector<std::uint8_t> zero_bytes = {0x77};  // repeated
  DType qweight_dtype = DType::i32;
};

SmallCheckpoint checkpoint_of(const Shapes& shapes, const std::string& block) {
  SmallCheckpoint small;
  const std::string name = up;
  small.add(name + ".qweight", shapes.qweight_dtype, shapes.qweight, {0x21});
  if (!shapes.qzeros.empty()) {
    small.add(name + ".qzeros", DType::i32, shapes.qzeros, shapes.zero_bytes);
  }
  small.add(name + ".scales", DType::f16, shapes.scales, {0x00, 0x3C});
  if (shapes.g_idx > 0) small.add(name + ".g_idx", DType::i32, {shapes.g_idx});
  small.add_bf16("model.norm.weight", {32}, {1.0F});
  if (!block.empty()) small.file("config.json", "{\"quantization_config\": " + block + "}");
  return small;
}

Identified identified(SmallCheckpoint& small) {
  Result<Identified> found = identify(small.open());
  EXPECT_TRUE(found) << found.error().message();
  return *std::move(found);
}

Module module_of(const Shapes& shapes, const std::string& block) {
  SmallCheckpoint small = checkpoint_of(shapes, block);
  return *identified(small).find(up);
}

std::string block(const std::string& method, const std::string& more = "") {
  return R"({"quant_method": ")" + method + R"(", "bits": 4, "group_size": 32)" + more + "}";
}

const Shapes gptq = {{4, 16}, {1, 2}, {1, 16}, 32};
const Shapes gemm = {{32, 2}, {1, 2}, {1, 16}};

TEST(IntegerWords, ShapesNameTheProducerWithOrWithoutAConfig) {
  struct Row {
    Shapes shapes;
    std::string block;
    Producer producer;
    Packing packing;
  };
  const std::string v1_round = block("auto-round", R"(, "packing_format": "auto_round:auto_gptq")");
  const std::string v2_round = block("auto-round", R"(, "packing_format": "auto_round:gptqmodel")");
  const std::string awq_round = block("auto-round", R"(, "packing_format": "auto_round:auto_awq")");
  const std::vector<Row> rows = {
      {gptq, "", Producer::gptq, Packing::words_k_minus},
      {gptq, block("gptq"), Producer::gptq, Packing::words_k_minus},
      {gptq, block("gptq", R"(, "checkpoint_format": "gptq_v2")"), Producer::gptq,
       Packing::words_k},
      {gptq, v1_round, Producer::auto_round, Packing::words_k_minus},
      {gptq, v2_round, Producer::auto_round, Packing::words_k},
      {gemm, awq_round, Producer::auto_round, Packing::words_n},
      {gemm, "", Producer::awq, Packing::words_n},
      {gemm, block("awq"), Producer::awq, Packing::words_n},
      // Tensors outrank the config.
      {gemm, block("gptq"), Producer::awq, Packing::words_n},
      {gptq, block("awq", R"(, "version": "gemm")"), Producer::gptq, Packing::words_k_minus},
      {gptq, block("compressed-tensors"), Producer::gptq, Packing::words_k_minus},
      // Zero points as they are: no config has to say so.
      {{{4, 16}, {1, 2}, {1, 16}, 32, {0x88}}, "", Producer::gptq, Packing::words_k},
      {{{16, 4}, {16, 4}, {16, 32}},
       block("awq", R"(, "version": "GEMV")"),
       Producer::awq,
       Packing::words_gemv},
  };
  for (const Row& row : rows) {
    const Module module = module_of(row.shapes, row.block);
    SCOPED_TRACE(row.block + " " + module.evidence);
    EXPECT_EQ(module.unreadable, "");
    EXPECT_STREQ(producer_name(module.scheme.producer), producer_name(row.producer));
    EXPECT_EQ(module.scheme.packing, row.packing);
    EXPECT_EQ(module.scheme.weight, DType::u4);
    EXPECT_EQ(module.n, 16);
    EXPECT_EQ(module.k, 32);
  }
}

// K = 256 in groups of 32 as GEMV: the same shapes as GPTQ with groups of 8.
TEST(IntegerWords, ShapesOfTwoLayoutsNeedAConfig) {
  const Shapes both = {{64, 32}, {64, 4}, {64, 32}};
  EXPECT_THAT(module_of(both, "").unreadable,
              AllOf(HasSubstr("more than one layout"), HasSubstr("GPTQ 4 bit [32, 512]"),
                    HasSubstr("AWQ GEMV 4 bit [64, 256], groups of 32")));
  const Module gemv = module_of(both, block("awq", R"(, "version": "gemv")"));
  EXPECT_EQ(gemv.unreadable, "");
  EXPECT_EQ(gemv.k, 256);
  const Module down = module_of(both, R"({"quant_method": "gptq", "bits": 4, "group_size": 8})");
  EXPECT_EQ(down.unreadable, "");
  EXPECT_EQ(down.k, 512);
}

// One word of zero points holds 8 of 2, 3 or 4 bits: only the config and g_idx tell the width.
TEST(IntegerWords, TheLengthOfGroupNumbersChangesNoWidthThatIsSettled) {
  for (const std::int64_t length : {64, 33, 32, 31, 0}) {
    SCOPED_TRACE(length);
    for (const Shapes& shapes :
         {Shapes{{4, 8}, {1, 1}, {1, 8}, length}, Shapes{{4, 16}, {1, 2}, {1, 16}, length}}) {
      const Module module = module_of(shapes, block("gptq"));
      EXPECT_EQ(module.scheme.weight, DType::u4);
      EXPECT_EQ(module.k, 32);
    }
    Shapes wide = {{4, 64}, {1, 8}, {1, 64}, length};
    EXPECT_EQ(module_of(wide, "").scheme.weight, DType::u4);
    EXPECT_EQ(module_of(wide, "").k, 32);
  }
  const Module narrow = module_of({{4, 8}, {1, 1}, {1, 8}, 64}, "");
  EXPECT_EQ(narrow.scheme.weight, DType::u2);
  EXPECT_EQ(narrow.k, 64);
}

// 128 columns of 2 bits; of 4 bits they were 64 in groups of 16, where the config says 32.
TEST(IntegerWords, TensorsThatAgreeOutrankTheWidthOfTheConfig) {
  const Module module = module_of({{8, 8}, {4, 1}, {4, 8}, 128}, block("gptq"));
  EXPECT_EQ(module.scheme.weight, DType::u2);
  EXPECT_EQ(module.k, 128);
}

TEST(IntegerWords, SymmetryIsStatedOrReadFromTheZeroPoints) {
  const std::string asymmetric = block("gptq", R"(, "sym": false)");
  EXPECT_TRUE(module_of(gptq, asymmetric).scheme.zero_points);
  const Scheme symmetric = module_of(gptq, block("gptq", R"(, "sym": true)")).scheme;
  EXPECT_FALSE(symmetric.zero_points);
  EXPECT_EQ(symmetric.zero_point, 8);
  Shapes mixed = gptq;
  mixed.zero_bytes = {0x37};
  EXPECT_TRUE(module_of(mixed, block("gptq")).scheme.zero_points);
  EXPECT_THAT(module_of(mixed, "").unreadable, HasSubstr("stored one too small"));
}

TEST(IntegerWords, WhatCannotBeReadIsRefusedByName) {
  struct Row {
    Shapes shapes;
    std::string block;
    const char* says;
  };
  Shapes stacked = {{2, 4, 16}, {2, 1, 2}, {2, 1, 16}};
  Shapes no_index = {{8, 16}, {2, 2}, {2, 16}};
  const std::vector<Row> rows = {
      {stacked, block("gptq"), "qweight [2, 4, 16] of stacked experts"},
      {{{2, 32}, {}, {1, 16}}, block("marlin"), "checkpoint_format \"marlin\""},
      {gptq, block("gptq", R"(, "checkpoint_format": "gptq_v9")"), "\"gptq_v9\""},
      {gptq, block("gptq", R"(, "pack_dtype": "int64")"), "pack_dtype \"int64\""},
      {no_index, block("gptq", R"(, "desc_act": true)"), "desc_act is true, but there is no g_idx"},
      {{{5, 16}, {1, 3}, {1, 16}},
       R"({"quant_method": "gptq", "bits": 5, "group_size": 32})",
       "GPTQ of 5 bits"},
      {gptq, R"({"quant_method": "gptq", "bits": 3, "checkpoint_format": "gptq_p"})",
       "gptq_p of 3 bits"},
      {gemm, block("awq", R"(, "version": "new")"), "AWQ version \"new\""},
      {{{7, 16}, {1, 3}, {1, 15}}, "", "fit neither GPTQ nor AWQ"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(module_of(row.shapes, row.block).unreadable, HasSubstr(row.says)) << row.block;
  }
}

// Experts 0 and 1 of one layer with two groups of 32 columns, a column each in turn where permuted.
SmallCheckpoint indexed(std::vector<std::string> permuted, const std::string& more) {
  const std::vector<std::uint8_t> in_turn = {0, 0, 0, 0, 1, 0, 0, 0};
  std::vector<std::uint8_t> runs(64 * 4);
  for (std::size_t j = 32; j < 64; ++j) runs[j * 4] = 1;
  SmallCheckpoint small;
  for (const std::string name :
       {"0.gate_proj", "0.up_proj", "0.down_proj", "1.gate_proj", "1.up_proj", "1.down_proj"}) {
    const std::string module = "model.layers.0.mlp.experts." + name;
    const bool odd = std::ranges::find(permuted, name) != permuted.end();
    small.add(module + ".qweight", DType::i32, {8, 64}, {0x21});
    small.add(module + ".qzeros", DType::i32, {2, 8}, {0x77});
    small.add(module + ".scales", DType::f16, {2, 64}, {0x00, 0x3C});
    small.add(module + ".g_idx", DType::i32, {64}, odd ? in_turn : runs);
  }
  small.file("config.json", "{\"quantization_config\": " + block("gptq", more) + "}");
  return small;
}

std::vector<std::string> ordered_of(const Identified& identified) {
  std::vector<std::string> names;
  for (const Module& module : identified.modules) {
    if (module.scheme.act_order == ActOrder::group) names.push_back(module.name.substr(27));
  }
  return names;
}

std::vector<std::string> rules_of(const Identified& identified, const std::string& beginning) {
  std::vector<std::string> rules;
  for (const Finding& finding : identified.findings) {
    if (finding.rule.starts_with(beginning)) rules.push_back(finding.rule + " " + finding.where);
  }
  return rules;
}

TEST(IntegerWords, ColumnsAreInTheOrderThatGroupNumbersSayWhateverTheConfigSays) {
  const std::string down = "0.down_proj";
  for (const std::string stated : {"", R"(, "desc_act": false)", R"(, "desc_act": true)"}) {
    SmallCheckpoint small = indexed({down}, stated);
    const Identified found = identified(small);
    const bool all = stated.ends_with("true");
    // One kernel multiplies all experts: those of the same role share the order's form.
    EXPECT_EQ(ordered_of(found).size(), all ? 6U : 2U) << stated;
    if (!all) {
      EXPECT_THAT(ordered_of(found), testing::ElementsAre(down, "1.down_proj"));
    }
    const std::string contradicts =
        "group-index-order model.layers.0.mlp.experts.0.down_proj.g_idx";
    EXPECT_EQ(rules_of(found, "group-index"), stated.ends_with("false")
                                                  ? std::vector<std::string>{contradicts}
                                                  : std::vector<std::string>{})
        << stated;
  }
  SmallCheckpoint runs = indexed({}, R"(, "desc_act": false)");
  EXPECT_EQ(ordered_of(identified(runs)).size(), 0U);
  EXPECT_EQ(rules_of(identified(runs), "group-index").size(), 0U);
}

TEST(IntegerWords, HeadersAloneTellThatGroupNumbersWereNotRead) {
  for (const std::string stated : {"", R"(, "desc_act": false)"}) {
    SmallCheckpoint small = indexed({"0.down_proj"}, stated);
    const auto found = identify(small.open(), Depth::headers);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(ordered_of(*found).size(), 0U);
    EXPECT_EQ(rules_of(*found, "group-index-unread").size(), 3U) << stated;  // one a role
  }
  SmallCheckpoint stated = indexed({"0.down_proj"}, R"(, "desc_act": true)");
  const auto found = identify(stated.open(), Depth::headers);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(rules_of(*found, "group-index").size(), 0U);
}

TEST(IntegerWords, OneGroupForAllColumnsIsInNoOrder) {
  Shapes shapes = gptq;
  const Scheme scheme = module_of(shapes, R"({"quant_method": "gptq", "bits": 4, "group_size": -1,
      "desc_act": true})")
                            .scheme;
  EXPECT_EQ(scheme.scale->granularity.cols, 0);
  EXPECT_EQ(scheme.act_order, ActOrder::none);
}

TEST(IntegerWords, AnUnknownMethodMakesNothingReadable) {
  EXPECT_THAT(module_of(gptq, block("sparkle4")).unreadable, HasSubstr("sparkle4"));
}

TEST(IntegerWords, PartsOfOtherProducersAreNotTakenForOurs) {
  SmallCheckpoint small = checkpoint_of(gptq, block("gptq"));
  small.add(std::string(up) + ".wscales", DType::f16, {1, 16});
  EXPECT_NE(identified(small).find(up)->unreadable, "");
}

TEST(IntegerWords, TheGroupSizeOfTheConfigCountsWhereItFits) {
  // 96 columns, two groups: 48 each, or 64 and a short one of 32.
  const Shapes shapes = {{12, 16}, {2, 2}, {2, 16}};
  const auto cols = [&](const std::string& size) {
    return module_of(shapes, R"({"quant_method": "gptq", "bits": 4, "group_size": )" + size + "}")
        .scheme.scale->granularity.cols;
  };
  EXPECT_EQ(cols("48"), 48);
  EXPECT_EQ(cols("64"), 64);
  EXPECT_THAT(module_of(shapes, "").unreadable, HasSubstr("groups of 48"));
}

}  // namespace
}  // namespace fewbit
