// SPDX-License-Identifier: Apache-2.0
#include "scheme/module_rules.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/fused_names.hpp"
#include "scheme/list_of_rules.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

using Kind = ModuleRules::Verdict::Kind;

bool excludes(Producer producer, const std::string& entry, const std::string& module) {
  return rules(producer, {entry}).judge(module).kind == Kind::whole;
}

// Names that share words: router, gate projection, expert's gate projection.
const std::vector<std::string> gates = {"model.layers.0.mlp.gate",
                                        "model.layers.0.mlp.gate_proj",
                                        "model.layers.0.mlp.experts.3.gate_proj",
                                        "model.layers.1.mlp.gate",
                                        "model.layers.10.mlp.gate",
                                        "model.layers.0.self_attn.b_proj",
                                        "model.layers.0.self_attn.q_b_proj"};

std::vector<int> hits(Producer producer, const std::string& entry) {
  const ModuleRules list = rules(producer, {entry});
  std::vector<int> out;
  for (std::size_t i = 0; i < gates.size(); ++i) {
    if (list.judge(gates[i]).kind == Kind::whole) out.push_back(static_cast<int>(i));
  }
  return out;
}

TEST(ModuleRules, ARegexMatchesFromTheStartAndNotToTheEnd) {
  const Producer ct = Producer::compressed_tensors;
  EXPECT_EQ(hits(ct, "re:.*gate"), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(hits(ct, "re:.*mlp.gate$"), (std::vector<int>{0, 3, 4}));
  EXPECT_EQ(hits(ct, "re:model.layers.1.*"), (std::vector<int>{3, 4}));
  EXPECT_EQ(hits(ct, R"(re:model\.layers\.1\..*)"), (std::vector<int>{3}));
  EXPECT_EQ(hits(ct, "re:.*linear_attn.*"), (std::vector<int>{}));
}

TEST(ModuleRules, ComponentsAreWholeAndSubstringsAreNot) {
  EXPECT_EQ(hits(Producer::fp8, "b_proj"), (std::vector<int>{5}));
  EXPECT_EQ(hits(Producer::awq, "b_proj"), (std::vector<int>{5, 6}));
  EXPECT_EQ(hits(Producer::fp8, "mlp.gate"), (std::vector<int>{0, 3, 4}));
  EXPECT_EQ(hits(Producer::awq, "mlp.gate"), (std::vector<int>{0, 1, 3, 4}));
}

// One string, four readings.
TEST(ModuleRules, TheProducerDecidesWhatAnEntryMeans) {
  const std::string entry = "model.layers.*.mlp";
  const std::string router = "model.layers.0.mlp.gate";
  EXPECT_TRUE(excludes(Producer::mxfp4, entry, router));                // regex from the start
  EXPECT_FALSE(excludes(Producer::modelopt, entry, router));            // glob on the whole name
  EXPECT_FALSE(excludes(Producer::compressed_tensors, entry, router));  // exact name
  EXPECT_FALSE(excludes(Producer::fp8, entry, router));                 // components
  EXPECT_TRUE(excludes(Producer::modelopt, entry + "*", router));
  EXPECT_TRUE(excludes(Producer::auto_round, ".*mlp.*", router));
  EXPECT_TRUE(excludes(Producer::quark, "re:.*mlp", router));
  EXPECT_FALSE(excludes(Producer::fp8, "re:.*mlp", router));
}

// Quark's rules: without * the name is looked for in the entry, and the first that matches counts.
TEST(ModuleRules, RulesOfQuarkMayHoldTheName) {
  const auto first = [](const std::vector<std::string>& texts, const std::string& module) {
    std::vector<PatternEntry> entries;
    for (const std::string& text : texts) entries.push_back({text, "layer_quant_config", true});
    const ModuleRules list(rule_dialect(Producer::quark), std::move(entries));
    const ModuleRules::Verdict verdict = list.judge(module);
    return verdict.entry != nullptr ? verdict.entry->text : std::string();
  };
  const std::string module = "model.layers.0.mlp.up_proj";
  for (const std::string text : {"", ".something", "_0", ".linear"}) {
    EXPECT_EQ(first({module + text}, module), module + text);
    EXPECT_EQ(first({"text." + module + text}, module), "text." + module + text);
    const std::string other = "language_model." + module + text;
    EXPECT_EQ(first({other}, module), other);
  }
  EXPECT_EQ(first({"up_proj"}, module), "");
  EXPECT_EQ(first({"model.layers.1.mlp.up_proj"}, module), "");
  EXPECT_EQ(first({"vision.layers.0.mlp.up_proj"}, module), "");
  EXPECT_EQ(first({"*up_proj", module}, module), "*up_proj");
  EXPECT_EQ(first({module, "*up_proj"}, module), module);
  EXPECT_EQ(first({"*down_proj", module + ".x", module}, module), module + ".x");
}

TEST(ModuleRules, EntriesThatHoldManyNamesTakeOfTheBudget) {
  std::vector<PatternEntry> entries;
  for (int i = 0; i < 64; ++i) entries.push_back({fmt::format("a.{}", i), "rules", true});
  const auto budget = std::make_shared<MatchBudget>(100);
  const ModuleRules list(rule_dialect(Producer::quark), std::move(entries), budget);
  const std::vector<std::string_view> names(8, "a");
  const std::vector<Finding> findings = list.report(names);
  ASSERT_FALSE(findings.empty());
  EXPECT_TRUE(std::ranges::any_of(findings, [](const Finding& finding) {
    return finding.rule == "pattern-limit" &&
           finding.found.find("100 match steps") != std::string::npos;
  }));
}

TEST(ModuleRules, ShortNamesMatchFullPaths) {
  const std::string module = "language_model.model.layers.0.linear_attn.in_proj_qkv";
  EXPECT_TRUE(excludes(Producer::fp8, "linear_attn.in_proj_qkv", module));
  EXPECT_TRUE(excludes(Producer::fp8, "in_proj_qkv", module));
  EXPECT_FALSE(excludes(Producer::fp8, "attn.in_proj_qkv", module));
  EXPECT_TRUE(excludes(Producer::fp8, "layers.*.linear_attn", module) ==
              excludes(Producer::awq, "layers.*.linear_attn", module));
  EXPECT_TRUE(excludes(Producer::modelopt, "*layers.*.linear_attn.in_proj_*", module));
}

TEST(ModuleRules, WrapperPrefixesMayStandOnEitherSide) {
  const std::vector<std::string> prefixes = {"", "model.", "language_model.",
                                             "model.language_model.", "language_model.model."};
  for (const Producer producer : {Producer::compressed_tensors, Producer::fp8}) {
    for (const std::string& in_list : prefixes) {
      for (const std::string& in_file : prefixes) {
        EXPECT_TRUE(
            excludes(producer, in_list + "layers.0.mlp.gate", in_file + "layers.0.mlp.gate"))
            << in_list << " against " << in_file;
      }
    }
  }
  for (const std::string& in_list : prefixes) {
    for (const std::string& in_file : prefixes) {
      for (const std::string rest : {"layers.0.self_attn.q_proj", "layers.*.self_attn.q_proj",
                                     "layers.0.self_attn*", "layers.?.self_attn.q_proj"}) {
        EXPECT_TRUE(
            excludes(Producer::modelopt, in_list + rest, in_file + "layers.0.self_attn.q_proj"))
            << in_list + rest << " against " << in_file;
      }
      EXPECT_TRUE(excludes(Producer::modelopt, "*" + in_list + "layers.0.self_attn*",
                           in_file + "layers.0.self_attn.q_proj"))
          << in_list << " against " << in_file;
    }
  }
  EXPECT_FALSE(excludes(Producer::modelopt, "layers.*.self_attn.q_proj",
                        "vision_tower.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(excludes(Producer::modelopt, "language_model.layers.0.mlp",
                        "vision_tower.layers.0.mlp.up_proj"));
  EXPECT_TRUE(excludes(Producer::compressed_tensors, R"(re:model\.layers\.0\..*)",
                       "model.language_model.layers.0.mlp.gate"));
  EXPECT_TRUE(excludes(Producer::modelopt, "model.layers.0.self_attn*",
                       "language_model.model.layers.0.self_attn.q_proj"));
  // Another model's layers are not this one's.
  EXPECT_FALSE(excludes(Producer::fp8, "model.layers.0", "vision_tower.encoder.layers.0.mlp"));
  EXPECT_TRUE(excludes(Producer::fp8, "vision_tower", "vision_tower.encoder.layers.0.mlp"));
}

TEST(ModuleRules, ModeloptReadsTextAnywhereAndWildcardsOnTheWholeName) {
  const Producer modelopt = Producer::modelopt;
  EXPECT_TRUE(excludes(modelopt, "model.layers.1*", "model.layers.1.mlp.experts.0.up_proj"));
  EXPECT_TRUE(excludes(modelopt, "model.layers.1*", "model.layers.10.mlp.experts.0.up_proj"));
  EXPECT_FALSE(excludes(modelopt, "model.layers.1*", "model.layers.2.mlp.experts.0.up_proj"));
  EXPECT_TRUE(excludes(modelopt, "model.layers.1.*", "model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(excludes(modelopt, "model.layers.1.*", "model.layers.10.mlp.up_proj"));
  EXPECT_TRUE(excludes(modelopt, "mlp.gate", "model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(excludes(modelopt, "lm_head", "language_model.lm_head"));
  EXPECT_FALSE(excludes(modelopt, "lm_head", "model.layers.0.mlp.up_proj"));
}

TEST(ModuleRules, AWrappersSuffixIsNoPartOfTheName) {
  for (const Producer producer :
       {Producer::compressed_tensors, Producer::fp8, Producer::modelopt}) {
    EXPECT_TRUE(excludes(producer, "visual.blocks.0.q_proj.linear", "visual.blocks.0.q_proj"));
  }
  EXPECT_TRUE(
      excludes(Producer::compressed_tensors, R"(re:visual.*\.linear$)", "visual.blocks.0.q_proj"));
  EXPECT_FALSE(excludes(Producer::fp8, "linear", "visual.blocks.0.q_proj"));
}

TEST(ModuleRules, TrailingDotsAreDropped) {
  EXPECT_TRUE(excludes(Producer::fp8, "model.layers.0.", "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(excludes(Producer::awq, "model.layers.0.", "model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(excludes(Producer::fp8, "model.layers.0.", "model.layers.01.mlp.up_proj"));
}

TEST(ModuleRules, FusedNamesAreTheirParts) {
  const Producer fp8 = Producer::fp8;
  const std::vector<std::string> parts = {"a.q_proj", "a.k_proj", "a.v_proj"};
  EXPECT_EQ(rules(fp8, parts).judge("a.qkv_proj").kind, Kind::whole);
  EXPECT_TRUE(excludes(fp8, "a.qkv_proj", "a.k_proj"));  // the list has the fused name
  EXPECT_FALSE(excludes(fp8, "a.qkv_proj", "a.o_proj"));
  EXPECT_EQ(rules(fp8, {"in_proj_qkv", "in_proj_g", "in_proj_f", "in_proj_a", "in_proj_b"})
                .judge("m.in_proj_qkvgfab")
                .kind,
            Kind::whole);
  EXPECT_TRUE(excludes(fp8, "m.in_proj_qkvz", "m.in_proj_z"));
  EXPECT_TRUE(excludes(fp8, "m.in_proj_ba", "m.in_proj_b"));
}

TEST(ModuleRules, APartOfAFusedModuleIsNoDecision) {
  const ModuleRules list = rules(Producer::fp8, {"mlp.gate_proj"});
  const ModuleRules::Verdict verdict = list.judge("model.layers.0.mlp.gate_up_proj");
  EXPECT_EQ(verdict.kind, Kind::partly);
  EXPECT_EQ(verdict.listed_parts, "gate_proj");
  EXPECT_EQ(verdict.other_parts, "up_proj");
  // compressed-tensors: one part is enough.
  EXPECT_TRUE(excludes(Producer::compressed_tensors, "re:.*gate_proj", "l.mlp.gate_up_proj"));
  // A projection that the table lacks is not inferred from its neighbour.
  EXPECT_FALSE(excludes(Producer::fp8, "self_attn.o_proj", "self_attn.qkv_proj"));
}

// A pattern of one part of a fused matrix says nothing of the others, unless the producer's loader
// tries it on the fused name.
TEST(ModuleRules, APatternOfOnePartIsNotOneOfTheOthers) {
  const std::string q = "model.layers.0.self_attn.q_proj";
  const std::string k = "model.layers.0.self_attn.k_proj";
  for (const Producer producer : {Producer::compressed_tensors, Producer::quark}) {
    EXPECT_TRUE(excludes(producer, "re:.*self_attn.q.*", q));
    EXPECT_FALSE(excludes(producer, "re:.*self_attn.q.*", k));
    EXPECT_TRUE(excludes(producer, "re:.*gate", "l.mlp.gate_proj"));
    EXPECT_FALSE(excludes(producer, "re:.*gate", "l.mlp.up_proj"));
    for (const std::string entry : {"re:.*qkv_proj$", "re:.*qkv.*"}) {
      EXPECT_TRUE(excludes(producer, entry, q)) << entry;
      EXPECT_TRUE(excludes(producer, entry, k)) << entry;
    }
  }
  EXPECT_FALSE(excludes(Producer::quark, "*self_attn.q*", k));
  EXPECT_FALSE(excludes(Producer::awq, "self_attn.q", k));
  EXPECT_FALSE(excludes(Producer::auto_round, ".*self_attn.q.*", k));
  EXPECT_FALSE(excludes(Producer::mxfp4, "model.layers.0.self_attn.q", k));
  // ModelOpt's: *self_attn.q* matches qkv_proj, which engines hold.
  EXPECT_TRUE(excludes(Producer::modelopt, "*self_attn.q*", k));
}

// The first entry of a fused name counts, whatever stands before it that means a part alone.
TEST(ModuleRules, APatternOfAPartHidesNoFusedName) {
  const ModuleRules list =
      rules(Producer::compressed_tensors, {"re:.*self_attn.q.*", "re:.*qkv_proj"});
  const ModuleRules::Verdict verdict = list.judge("model.layers.0.self_attn.k_proj");
  ASSERT_EQ(verdict.kind, Kind::whole);
  EXPECT_EQ(verdict.entry->text, "re:.*qkv_proj");
}

// Twelve, so that the number of one begins that of another.
Module twelve_experts(const std::string& part) {
  Module module;
  module.name = "model.layers.1.mlp.experts." + part;
  module.expert = all_experts;
  module.experts = 12;
  return module;
}

std::vector<std::string> names_of(int experts, const std::string& part) {
  std::vector<std::string> names;
  for (int expert = 0; expert < experts; ++expert) {
    names.push_back(fmt::format("model.layers.1.mlp.experts.{}.{}", expert, part));
  }
  return names;
}

TEST(ModuleRules, ExpertsInOneTensorMayBeListedOneByOne) {
  const Module down = twelve_experts("down_proj");
  for (const Producer producer : {Producer::fp8, Producer::modelopt, Producer::quark}) {
    EXPECT_EQ(rules(producer, names_of(12, "down_proj")).judge(down).kind, Kind::whole);
    EXPECT_EQ(rules(producer, {down.name}).judge(down).kind, Kind::whole);
    EXPECT_EQ(rules(producer, names_of(12, "up_proj")).judge(down).kind, Kind::none);
    const auto five = rules(producer, names_of(5, "down_proj"));
    EXPECT_EQ(five.judge(down).kind, Kind::partly);
    EXPECT_EQ(five.judge(down).listed_parts, "5 of 12 experts");
    EXPECT_EQ(five.judge(down).other_parts, "7");
    EXPECT_EQ(five.judge(down.name).kind, Kind::none);  // the name alone tells of no experts
  }
  // Of compressed-tensors any part takes the whole.
  const auto one = rules(Producer::compressed_tensors, names_of(1, "down_proj"));
  EXPECT_EQ(one.judge(down).kind, Kind::whole);
  ASSERT_NE(one.judge(down).entry, nullptr);
  EXPECT_EQ(one.judge(down).entry->text, "model.layers.1.mlp.experts.0.down_proj");
}

TEST(ModuleRules, ANumberOfAnExpertIsAWholeComponent) {
  const ModuleRules list = rules(Producer::fp8, {"model.layers.1.mlp.experts.1"});
  EXPECT_EQ(list.judge(twelve_experts("down_proj")).listed_parts, "1 of 12 experts");
  const ModuleRules other = rules(Producer::fp8, {"model.layers.11.mlp.experts.1"});
  EXPECT_EQ(other.judge(twelve_experts("down_proj")).kind, Kind::none);
}

TEST(ModuleRules, ExpertsOfAFusedTensorNeedAllTheirParts) {
  const Module both = twelve_experts("gate_up_proj");
  std::vector<std::string> names = names_of(12, "gate_proj");
  const ModuleRules half = rules(Producer::fp8, names);
  EXPECT_EQ(half.judge(both).kind, Kind::partly);
  EXPECT_EQ(half.judge(both).listed_parts, "gate_proj");
  for (std::string& name : names_of(12, "up_proj")) names.push_back(std::move(name));
  EXPECT_EQ(rules(Producer::fp8, names).judge(both).kind, Kind::whole);
}

TEST(FusedNames, PartsAndSpellings) {
  EXPECT_EQ(fused_parts("fused_wqa_wkv"), (std::vector<std::string>{"wq_a", "wkv"}));
  EXPECT_EQ(fused_names_of("wkv"), (std::vector<std::string>{"fused_wqa_wkv"}));
  EXPECT_EQ(other_spelling("ffn.experts.0.w3"), "ffn.experts.0.up_proj");
  EXPECT_EQ(other_spelling("ffn.experts.0.down_proj"), "ffn.experts.0.w2");
  EXPECT_EQ(other_spelling("w13"), "gate_up_proj");
  EXPECT_EQ(other_spelling("self_attn.q_proj"), "");
}

}  // namespace
}  // namespace fewbit
