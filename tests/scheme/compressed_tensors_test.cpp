// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheme/compressed_tensors_args.hpp"
#include "scheme/compressed_tensors_config.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/nibble_types.hpp"
#include "scheme/small_checkpoint.hpp"
#include "scheme/whole_words.hpp"
#include "scheme/word_forms.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

const char* const up = "model.layers.0.mlp.experts.0.up_proj";

std::string block(const std::string& groups, const std::string& more = "") {
  return R"({"quantization_config": {"quant_method": "compressed-tensors", "format":
      "pack-quantized", "config_groups": {)" +
         groups + "}" + more + "}}";
}

std::string group(const std::string& name, const std::string& targets,
                  const std::string& weights = R"("num_bits": 4, "group_size": 32)") {
  return "\"" + name + R"(": {"targets": [)" + targets + R"(], "weights": {)" + weights + "}}";
}

CtConfig read(const std::string& text) {
  SmallCheckpoint small;
  small.add_bf16("model.norm.weight", {32}).file("config.json", text);
  const Checkpoint checkpoint = small.open();
  const auto declared = read_declared(checkpoint);
  EXPECT_TRUE(declared);
  auto config = CtConfig::read(*declared, {});
  EXPECT_TRUE(config.has_value());
  return *std::move(config);
}

std::string group_name(const CtConfig& config, const std::string& name) {
  Module module;
  module.name = name;
  module.role = find_role(name).role;
  const CtGroup* found = config.group_of(module);
  return found != nullptr ? found->name : "none";
}

TEST(CompressedTensorsConfig, ExactNamesOutrankRegexesInTheirOrderAndThoseClasses) {
  const CtConfig config = read(block(group("all", R"("Linear")") + "," +
                                         group("later", R"("re:model\\.layers.*up_proj")") + "," +
                                         group("earlier", R"("re:.*up_proj")") + "," +
                                         group("one", R"("model.layers.1.mlp.up_proj")"),
                                     R"(, "ignore": ["lm_head", "re:.*self_attn.*"])"));
  EXPECT_EQ(group_name(config, "model.layers.1.mlp.up_proj"), "one");
  EXPECT_EQ(group_name(config, "model.layers.0.mlp.up_proj"), "earlier");
  EXPECT_EQ(group_name(config, "model.layers.0.mlp.down_proj"), "all");
  EXPECT_EQ(group_name(config, "model.layers.0.self_attn.q_proj"), "none");
  EXPECT_EQ(group_name(config, "lm_head"), "none");
  EXPECT_EQ(group_name(config, "model.embed_tokens"), "none");
  EXPECT_EQ(group_name(config, "model.norm"), "none");
  EXPECT_EQ(group_name(read(block(group("all", R"("Linear")"))), "lm_head"), "all");
}

TEST(CompressedTensorsConfig, ARegexIsAnchoredAtItsStartOnly) {
  const CtConfig config = read(block(group("all", R"("Linear")"), R"(, "ignore": ["re:.*gate"])"));
  EXPECT_EQ(group_name(config, "model.layers.0.mlp.gate_proj"), "none");
  const CtConfig inner = read(block(group("all", R"("re:mlp")")));
  EXPECT_EQ(group_name(inner, "model.layers.0.mlp.gate_proj"), "none");
}

// Words [lines, words] of codes in no order, in one of the two forms.
std::vector<std::uint32_t> mixed_words(std::int64_t lines, std::int64_t count, int bits,
                                       bool whole) {
  const std::int64_t words = words_of_codes(count, bits, whole);
  std::vector<std::uint32_t> out(static_cast<std::size_t>(lines * words));
  for (std::int64_t i = 0; i < lines * count; ++i) {
    const std::int64_t bit = bit_of_code(i % count, bits, whole);
    const auto at = static_cast<std::size_t>(i / count * words + bit / 32);
    const std::uint64_t code =
        (static_cast<std::uint64_t>(i + 1) * 2654435761U >> 13) % (1U << bits) << (bit % 32);
    out[at] |= static_cast<std::uint32_t>(code);
    if (code >> 32 != 0) out[at + 1] |= static_cast<std::uint32_t>(code >> 32);
  }
  return out;
}

WordForms forms(const std::vector<std::uint32_t>& words, std::int64_t lines, std::int64_t count,
                int bits) {
  WordLines from;
  from.bytes = std::as_bytes(std::span(words));
  from.lines = lines;
  from.words = from.block = static_cast<std::int64_t>(words.size()) / lines;
  from.count = count;
  return forms_of(from, bits);
}

TEST(WholeWords, AreToldFromAStreamByTheirNumberAndTheirPadding) {
  for (const int bits : {3, 5, 6, 7}) {
    for (std::int64_t count = 32 / bits + 1; count < 200; ++count) {
      for (const bool whole : {false, true}) {
        const WordForms told = forms(mixed_words(24, count, bits, whole), 24, count, bits);
        EXPECT_EQ(told.whole, whole) << count << " of " << bits;
        EXPECT_EQ(told.stream, !whole) << count << " of " << bits;
        EXPECT_EQ(told.gaps, whole) << count << " of " << bits;
      }
    }
  }
  EXPECT_EQ(words_of_codes(90, 3, true), 9);
  EXPECT_EQ(words_of_codes(90, 3, false), 9);
}

TEST(WholeWords, AreTheSameAsAStreamInOneWordAndWithoutABit) {
  const WordForms one = forms(mixed_words(8, 10, 3, true), 8, 10, 3);
  EXPECT_TRUE(one.whole && one.stream && one.gaps);
  const WordForms none = forms(std::vector<std::uint32_t>(36), 4, 90, 3);
  EXPECT_TRUE(none.whole && none.stream && none.gaps);
}

TEST(WholeWords, AreToldDownTheColumnsOfZeroPoints) {
  const std::int64_t count = 40;
  for (const bool whole : {false, true}) {
    const auto rows = mixed_words(6, count, 3, whole);
    const std::size_t words = rows.size() / 6;
    std::vector<std::uint32_t> down(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      down[i % words * 3 + i / words % 3 + i / words / 3 * words * 3] = rows[i];
    WordLines from;
    from.bytes = std::as_bytes(std::span(down));
    from.lines = 6;
    from.words = static_cast<std::int64_t>(words);
    from.count = count;
    from.each = from.step = 3;
    from.block = from.words * 3;
    from.line = 1;
    const WordForms told = forms_of(from, 3);
    EXPECT_EQ(told.whole, whole);
    EXPECT_EQ(told.stream, !whole);
  }
}

TEST(WholeWords, AreThoseOfVersionsBefore018) {
  for (const char* const old : {"0.8.1", "0.12.2", "0.17.1", "0.9.4a20250101"}) {
    EXPECT_EQ(packs_whole_codes(old), true) << old;
  }
  for (const char* const later : {"0.18.0", "0.20.1", "1.0.0", "0.19.1.a2026"}) {
    EXPECT_EQ(packs_whole_codes(later), false) << later;
  }
  for (const char* const none :
       {"", "x", "0", "0.", "0.x", "0.17.2.a20260101", "0.18.0rc1", "-1.2", "99999999999.1"}) {
    EXPECT_EQ(packs_whole_codes(none), std::nullopt) << none;
  }
}

TEST(NibbleTypes, AreAutoRoundsNamesAlone) {
  for (const char* const name : {"mx_fp", "mx_fp4", "mx_fp_rceil", "nv_fp4_with_static_gs",
                                 "nvfp4_v2", "fp4_v2_with_global_scale"}) {
    EXPECT_EQ(nibble_codes(name), NibbleCodes::floats) << name;
  }
  EXPECT_EQ(nibble_codes("mx_int4"), NibbleCodes::quarters);
  for (const char* const name : {"", "int", "mxint4", "mx_int4 ", "mx_int", "mx_fp8", "mx_fp6",
                                 "fp8", "7", "mx_fp4x", "MX_INT4"}) {
    EXPECT_EQ(nibble_codes(name), NibbleCodes::untold) << name;
  }
}

TEST(WholeWords, NoCodeLiesInTwo) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (std::int64_t i = 0; i < 100; ++i) {
      const std::int64_t bit = bit_of_code(i, bits, true);
      EXPECT_LE(bit % 32 + bits, 32);
      EXPECT_LT(bit / 32, words_of_codes(i + 1, bits, true));
      EXPECT_EQ(bit_of_code(i, bits, false), i * bits);
    }
  }
  EXPECT_EQ(bit_of_code(10, 3, true), 32);
}

TEST(CompressedTensorsConfig, PresetsAreSpelledOut) {
  const auto fp8_block = find_ct_preset("fp8_block");
  ASSERT_TRUE(fp8_block);
  EXPECT_EQ(fp8_block->weights.block, (Granularity{128, 128}));
  EXPECT_TRUE(fp8_block->weights.floating);
  EXPECT_EQ(find_ct_preset("NVFP4A16")->weights.group_size, 16);
  EXPECT_FALSE(find_ct_preset("NVFP4A16")->activations);
  EXPECT_EQ(find_ct_preset("MXFP4")->weights.group_size, 32);
  EXPECT_EQ(find_ct_preset("W3A16")->weights.bits, 3);
  EXPECT_FALSE(find_ct_preset("W4A16_ASYM")->weights.symmetric);
  EXPECT_FALSE(find_ct_preset("W9A16"));
  EXPECT_FALSE(find_ct_preset("W4"));
  EXPECT_FALSE(find_ct_preset("colour"));
}

TEST(CompressedTensorsConfig, OldSpellingsAndOddValuesOfArguments) {
  const CtConfig config = read(block(
      group("a", R"("re:.*a")", R"("num_bits": 8, "block_structure": "128x64", "actorder": true)") +
      "," + group("b", R"("re:.*b")", R"("num_bits": 99, "type": "fuzzy", "group_size": 0,
          "block_structure": "128", "actorder": "sideways", "colour": 1)")));
  EXPECT_EQ(config.groups()[0].weights->block, (Granularity{128, 64}));
  EXPECT_EQ(config.groups()[0].weights->act_order, ActOrder::group);
  std::string odd;
  for (const Finding& finding : config.findings({}, {})) {
    EXPECT_EQ(finding.rule == "config-value" || finding.rule == "pattern-unmatched", true);
    odd += finding.found + "; ";
  }
  for (const char* text : {"num_bits 99", "type \"fuzzy\"", "group_size 0",
                           "block_structure \"128\"", "actorder \"sideways\"", "colour 1"}) {
    EXPECT_THAT(odd, HasSubstr(text));
  }
}

TEST(CompressedTensorsConfig, RotationsAndSparsityAreObstaclesByName) {
  const std::string all = group("all", R"("Linear")");
  EXPECT_EQ(read(block(all, R"(, "transform_config": {}, "sparsity_config": null)")).obstacle(),
            "");
  EXPECT_THAT(read(block(all, R"(, "transform_config": {"config_groups": {"R1": {}}})")).obstacle(),
              HasSubstr("rotated"));
  EXPECT_THAT(
      read(block(all, R"(, "sparsity_config": {"format": "sparse-24-bitmask"})")).obstacle(),
      HasSubstr("sparse-24-bitmask"));
  EXPECT_EQ(read(block(all, R"(, "sparsity_config": {"format": "dense"})")).obstacle(), "");
}

// One matrix of packed words; its module.
Module packed(SmallCheckpoint& small, const std::string& text, const Shape& words,
              const Shape& scale) {
  small.add(std::string(up) + ".weight_packed", DType::i32, words);
  small.add_bf16(std::string(up) + ".weight_scale", scale, {1.0F});
  small.file("config.json", text);
  const Checkpoint checkpoint = small.open();
  const auto identified = identify(checkpoint);
  EXPECT_TRUE(identified) << identified.error().message();
  return *identified->find(up);
}

void add_shape(SmallCheckpoint& small, std::uint8_t n, std::uint8_t k) {
  small.add(std::string(up) + ".weight_shape", DType::i64, {2},
            {n, 0, 0, 0, 0, 0, 0, 0, k, 0, 0, 0, 0, 0, 0, 0});
}

TEST(PackedRows, ColumnsAreThoseOfWeightShape) {
  SmallCheckpoint small;
  add_shape(small, 16, 52);
  const Module module = packed(small, "{}", {16, 5}, {16, 1});
  EXPECT_EQ(module.unreadable, "");
  EXPECT_EQ(module.k, 52);
  EXPECT_EQ(module.scheme.weight, DType::u3);
  EXPECT_EQ(module.scheme.zero_point, 4);
  EXPECT_EQ(module.scheme.packing, Packing::words_row);
}

TEST(PackedRows, GroupsTellTheColumnsOfAMatrixWithoutWeightShape) {
  SmallCheckpoint small;
  const Module module = packed(small, block(group("all", R"("Linear")")), {16, 12}, {16, 3});
  EXPECT_EQ(module.unreadable, "");
  EXPECT_EQ(module.k, 96);
  SmallCheckpoint rows;
  const Module unknown = packed(rows, block(group("all", R"("Linear")")), {16, 12}, {16, 1});
  EXPECT_THAT(unknown.unreadable, HasSubstr("weight_shape"));
  EXPECT_THAT(unknown.unreadable, HasSubstr("12 words"));
}

TEST(PackedRows, ContradictionsAreRefusedWithBothSides) {
  SmallCheckpoint shape;
  add_shape(shape, 16, 200);
  const Module longer = packed(shape, block(group("all", R"("Linear")")), {16, 5}, {16, 1});
  EXPECT_THAT(longer.unreadable, HasSubstr("16 rows of 5 words"));
  EXPECT_THAT(longer.unreadable, HasSubstr("[16, 200]"));
  SmallCheckpoint scale;
  add_shape(scale, 16, 64);
  const Module odd = packed(scale, block(group("all", R"("Linear")")), {16, 8}, {16, 3});
  EXPECT_THAT(odd.unreadable, HasSubstr("weight_scale bf16 [16, 3] for a matrix [16, 64]"));
  // The config says 8 bits, the sizes allow 4 only.
  SmallCheckpoint bits;
  add_shape(bits, 16, 64);
  const Module four =
      packed(bits, block(group("all", R"("Linear")", R"("num_bits": 8)")), {16, 8}, {16, 1});
  EXPECT_EQ(four.unreadable, "");
  EXPECT_EQ(four.scheme.weight, DType::u4);
}

}  // namespace
}  // namespace fewbit
