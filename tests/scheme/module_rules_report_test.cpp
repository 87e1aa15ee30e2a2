// SPDX-License-Identifier: Apache-2.0
// What a list of modules says of its own entries.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheme/list_of_rules.hpp"
#include "scheme/module_rules.hpp"

namespace fewbit {
namespace {

using Kind = ModuleRules::Verdict::Kind;

Finding only_finding(const ModuleRules& list, std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::vector<Finding> found = list.report(views);
  EXPECT_EQ(found.size(), 1U);
  return found.empty() ? Finding{} : found.front();
}

TEST(ModuleRulesReport, NamesEntriesThatMatchNothing) {
  const Finding finding =
      only_finding(rules(Producer::fp8, {"mlp.gate", "mlp.gat_proj", "lm_haed"}),
                   {"model.layers.0.mlp.gate_proj", "lm_head", "mlp.gate"});
  EXPECT_EQ(finding.rule, "pattern-unmatched");
  EXPECT_EQ(finding.where, "config.json ignore");
  EXPECT_EQ(finding.found, "2 of 3 entries match no module: \"mlp.gat_proj\", \"lm_haed\"");
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_NE(finding.expected.find("as \"mlp.gate_proj\" would"), std::string::npos);
}

// Of names that hold those of modules all ends are sorted, which takes time as their square.
TEST(ModuleRulesReport, NamesLongerThanAnyModulesAreALimit) {
  for (const std::size_t dots : {std::size_t{2048}, std::size_t{2049}, std::size_t{500'000}}) {
    std::string name;
    for (std::size_t i = 0; i < dots; ++i) name += "a.";
    const ModuleRules list(rule_dialect(Producer::quark), {{name, "config.json rules"}});
    const Finding finding = only_finding(list, {"model.layers.0.mlp"});
    EXPECT_EQ(finding.rule, dots == 2048 ? "pattern-unmatched" : "pattern-limit");
    if (dots == 2048) continue;
    EXPECT_EQ(finding.found, "a name of " + std::to_string(2 * dots) +
                                 " characters, compared are names of at most 4096");
  }
}

Finding finding_of(Producer producer, const std::string& entry, const ListContext& context) {
  std::vector<std::string_view> names = {
      "model.layers.0.mlp.gate", "model.layers.0.mlp.shared_expert.up_proj",
      "model.layers.0.self_attn.indexer.wk", "model.layers.0.self_attn.o_proj",
      "model.layers.0.self_attn.q_b_proj"};
  const std::vector<Finding> found = rules(producer, {entry}).report(names, context);
  EXPECT_EQ(found.size(), 1U) << entry;
  return found.empty() ? Finding{} : found.front();
}

// A slip misses a module that was meant; what the model lacks altogether is no mistake.
TEST(ModuleRulesReport, OnlySlipsAreMistakesWhereModulesAreAsTheConfigSays) {
  const Producer ct = Producer::compressed_tensors;
  for (const auto& [producer, entry] : {std::pair{Producer::fp8, "model.decoder.self_attn.o_proj"},
                                        {Producer::fp8, "model.layers.0.self_attn.indexers_proj"},
                                        {Producer::fp8, "model.layers.61"},
                                        {Producer::modelopt, "model.layers.61*"},
                                        {Producer::awq, "mlp.shared_experts"},
                                        {ct, "re:.*kv_b_proj$"},
                                        {ct, "re:.*mixer.*"},
                                        {ct, "re:.*in_proj_[ab]$"},
                                        {ct, "Linear"},
                                        {ct, "mtp.fc"},
                                        {ct, "model.visual.merger.linear_fc1"},
                                        {ct, R"(re:.*\.18\..*gate.*)"},
                                        {ct, "re:.*self_attn.g_proj"}}) {
    EXPECT_EQ(finding_of(producer, entry, {false, 2}).level, Level::info) << entry;
  }
  for (const auto& [producer, entry] :
       {std::pair{Producer::fp8, "self_atn.o_proj"},
        {Producer::fp8, "re:.*gate$"},  // what this producer does not know
        {Producer::modelopt, "*self_attn.o_porj*"},
        {Producer::mxfp4, "self_attn.o_proj"},  // regular expressions begin at the start
        {ct, "mlp.shared_expert.up_proj"},      // whole names
        {ct, "re:.*selfattn.*"},
        {ct, "re:.*mlp.shraed_expert.*"}}) {
    EXPECT_EQ(finding_of(producer, entry, {false, 2}).level, Level::warning) << entry;
  }
}

TEST(ModuleRulesReport, AContradictionMakesEveryUnmatchedEntrySuspect) {
  const ListContext context{true, 2};
  const Producer ct = Producer::compressed_tensors;
  EXPECT_EQ(finding_of(ct, "re:.*kv_b_proj$", context).level, Level::warning);
  EXPECT_EQ(finding_of(ct, "re:visual.*", context).level, Level::info);
  EXPECT_EQ(finding_of(ct, "model.layers.2.mlp.gate", context).level, Level::info);
  EXPECT_EQ(finding_of(ct, "model.layers.1.mlp.gate", context).level, Level::warning);
}

// What exporters list for every model may be absent.
TEST(ModuleRulesReport, EntriesOfEveryExportOnlyInform) {
  for (const auto& [producer, entry] :
       {std::pair{Producer::fp8, "router"},
        {Producer::modelopt, "*mlp.shared_expert_gate.*"},
        {Producer::modelopt, "*router*"},
        {Producer::compressed_tensors, R"(re:model\.visual.*)"},
        {Producer::compressed_tensors, "re:.*block_sparse_moe.gate$"}}) {
    const Finding finding = only_finding(rules(producer, {entry}), {"model.layers.0.mlp.gate"});
    EXPECT_EQ(finding.rule, "pattern-unmatched") << entry;
    EXPECT_EQ(finding.level, Level::info) << entry;
  }
}

TEST(ModuleRulesReport, EntriesThatNameFusedOrPartModulesAreMatched) {
  const std::vector<std::string> fused = {"a.in_proj_qkvz", "a.qkv_proj"};
  const std::vector<std::string_view> names(fused.begin(), fused.end());
  const ModuleRules list =
      rules(Producer::fp8, {"q_proj", "k_proj", "v_proj", "in_proj_z", "a.in_proj_qkv"});
  EXPECT_TRUE(list.report(names).empty());
  const std::vector<std::string_view> leaves = {"a.k_proj", "a.q_proj", "a.v_proj"};
  EXPECT_TRUE(rules(Producer::compressed_tensors, {"a.qkv_proj"}).report(leaves).empty());
}

TEST(ModuleRulesReport, NamesLayersThatANumberDoesNotSuggest) {
  std::vector<std::string> names;
  for (int layer = 0; layer < 22; ++layer) {
    names.push_back("model.layers." + std::to_string(layer) + ".mlp.up_proj");
  }
  const struct {
    Producer producer;
    const char* entry;
    const char* found;
  } wide[] = {
      {Producer::compressed_tensors, "re:model.layers.1.*", "layers 1 and 10 to 19"},
      {Producer::compressed_tensors, R"(re:model\.layers\.1)", "layers 1 and 10 to 19"},
      {Producer::modelopt, "model.layers.2*", "layers 2 and 20 to 21"},
      {Producer::modelopt, "model.layers.1", "layers 1 and 10 to 19"},
      {Producer::awq, "layers.2", "layers 2 and 20 to 21"},
  };
  for (const auto& one : wide) {
    const Finding finding = only_finding(rules(one.producer, {one.entry}), names);
    EXPECT_EQ(finding.rule, "pattern-wide") << one.entry;
    EXPECT_NE(finding.found.find(one.found), std::string::npos) << finding.found;
  }
  std::sort(names.begin(), names.end());
  const std::vector<std::string_view> views(names.begin(), names.end());
  for (const auto& [producer, entry] :
       {std::pair{Producer::compressed_tensors, R"(re:model\.layers\.1\..*)"},
        {Producer::modelopt, "model.layers.1.*"},
        {Producer::fp8, "model.layers.1"},
        {Producer::compressed_tensors, R"(re:model\.layers\.1\d\.mlp.*)"},
        {Producer::modelopt, "model.layers.9*"}}) {
    EXPECT_TRUE(rules(producer, {entry}).report(views).empty()) << entry;
  }
}

TEST(ModuleRulesReport, RefusedAndEndlessPatternsAreNamed) {
  const Finding refused =
      only_finding(rules(Producer::compressed_tensors, {R"(re:\p{L}+)"}), {"a"});
  EXPECT_EQ(refused.rule, "pattern-invalid");
  EXPECT_NE(refused.found.find("\\\\p"), std::string::npos) << refused.found;
  const Finding endless = only_finding(rules(Producer::compressed_tensors, {"re:(a+)+b"}),
                                       {std::string(60, 'a') + "cb"});
  EXPECT_EQ(endless.rule, "pattern-limit");
}

// Ten patterns that each stay below their own limit on every name.
TEST(ModuleRulesReport, StepsOfAllPatternsTogetherAreBounded) {
  std::vector<PatternEntry> entries;
  std::vector<std::string> names;
  for (int i = 0; i < 10; ++i) {
    entries.push_back({fmt::format("re:(?=(?:.*.*.*)(?:!|{}#))", i), "the list"});
  }
  for (int i = 0; i < 23040; ++i) names.push_back(fmt::format("layers.{}.experts.{}", i / 256, i));
  std::sort(names.begin(), names.end());
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto budget = std::make_shared<MatchBudget>(1'000'000);
  const Dialect dialect = dialect_of(Producer::compressed_tensors);
  const std::vector<Finding> found = ModuleRules(dialect, entries, budget).report(views);
  EXPECT_TRUE(budget->spent());
  std::size_t named = 0;
  for (const Finding& finding : found) {
    if (finding.rule != "pattern-limit") continue;
    ++named;
    EXPECT_NE(finding.found.find("of the 1000000 match steps"), std::string::npos) << finding.found;
    EXPECT_NE(finding.found.find("(?=(?:.*.*.*)(?:!|"), std::string::npos) << finding.found;
  }
  EXPECT_EQ(named, 10U);
  // Of many that take little each no one is to blame: it is their sum.
  std::vector<PatternEntry> alike;
  for (int i = 0; i < 40; ++i) alike.push_back({fmt::format("re:.*(?:!|{}#)", i), "the list"});
  const auto small = std::make_shared<MatchBudget>(100'000);
  const ModuleRules many(dialect, alike, small);
  const std::vector<Finding> told = many.report(views);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].rule, "pattern-limit");
  EXPECT_TRUE(told[0].found.starts_with("40 of 40 patterns are not tried on every name"))
      << told[0].found;
  EXPECT_NE(told[0].found.find("are spent by the sum of all: the costliest, "), std::string::npos)
      << told[0].found;
  EXPECT_EQ(told[0].expected, "fewer patterns: each alone needs few steps");
  EXPECT_LT(many.tries(), 100'000U);

  // A list that shares a spent budget says so and does not pass for one that matches nothing.
  const ModuleRules after(dialect, {{"re:.*experts", "another list"}}, budget);
  EXPECT_EQ(only_finding(after, {"layers.0.experts.0"}).rule, "pattern-limit");
}

// Those that took the steps are told first, and the others as not tried.
TEST(ModuleRulesReport, PatternsThatWereLeftNoStepsAreNotToBlame) {
  std::vector<PatternEntry> entries = {{"re:.*gate", "the list"}, {"re:.*router", "the list"}};
  entries.push_back({"re:(?=(?:.*.*.*.*)(?:!|#))", "the list"});
  for (int i = 0; i < 30; ++i) entries.push_back({fmt::format("re:.*expert{}$", i), "the list"});
  std::vector<std::string> names;
  for (int i = 0; i < 5000; ++i) names.push_back(fmt::format("layers.{}.experts.{}", i / 256, i));
  std::sort(names.begin(), names.end());
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto budget = std::make_shared<MatchBudget>(1'000'000);
  const ModuleRules list(dialect_of(Producer::compressed_tensors), entries, budget);
  const std::vector<Finding> found = list.report(views);
  ASSERT_TRUE(budget->spent());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_NE(found[0].found.find("(?=(?:.*.*.*.*)"), std::string::npos) << found[0].found;
  EXPECT_NE(found[1].found.find("32 of 33 patterns are not tried on every name"), std::string::npos)
      << found[1].found;
  EXPECT_EQ(found[1].rule, "pattern-limit");
  const std::string culprit = "by pattern \"(?=(?:.*.*.*.*)(?:!|#))\"";
  EXPECT_TRUE(found[1].found.ends_with(culprit)) << found[1].found;
  // Where another reader of the list spent them, too.
  const ModuleRules again(dialect_of(Producer::compressed_tensors), entries, budget);
  const std::vector<Finding> told = again.report(views);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].found.find("33 of 33 patterns are not tried"), std::string::npos)
      << told[0].found;
  EXPECT_TRUE(told[0].found.ends_with(culprit)) << told[0].found;
  EXPECT_EQ(told[0].expected, "fewer steps for pattern \"(?=(?:.*.*.*.*)(?:!|#))\"");
  // A list of another config too, which has nothing of it.
  const ModuleRules other(dialect_of(Producer::compressed_tensors), {{"re:.*gate", "other"}},
                          budget);
  const Finding left = only_finding(other, names);
  EXPECT_NE(left.found.find(culprit), std::string::npos) << left.found;
}

TEST(ModuleRulesReport, LongListsStayFast) {
  std::vector<std::string> texts;
  std::vector<std::string> names;
  for (int i = 0; i < 20000; ++i) {
    texts.push_back("model.layers." + std::to_string(i) + ".mlp.gate");
    names.push_back("model.layers." + std::to_string(i) + ".mlp.experts.0.up_proj");
  }
  std::sort(names.begin(), names.end());
  const std::vector<std::string_view> views(names.begin(), names.end());
  for (const Producer producer : {Producer::compressed_tensors, Producer::fp8}) {
    const std::vector<Finding> found = rules(producer, texts).report(views);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_NE(found.front().found.find("20000 of 20000"), std::string::npos);
  }
  // Patterns that must be tried one by one are bounded.
  EXPECT_FALSE(rules(Producer::modelopt, texts).report(views).empty());
}

// Patterns are tried only on names that have their text: rules and modules of a large model.
TEST(ModuleRulesReport, FewPatternsAreTriedOnANameWhateverTheirNumber) {
  std::vector<std::string> texts;
  std::vector<std::string> names;
  for (int layer = 0; layer < 40; ++layer) {
    texts.push_back(fmt::format(R"(re:.*layers\.{}\.mlp\.gate$)", layer));
    texts.push_back(fmt::format(R"(re:model\.layers\.{}\.mlp\.experts\.7\.(?:up_proj|w3))", layer));
    for (int expert = 0; expert < 50; ++expert) {
      names.push_back(fmt::format("model.layers.{}.mlp.experts.{}.up_proj", layer, expert));
    }
    names.push_back(fmt::format("model.layers.{}.mlp.gate", layer));
  }
  std::sort(names.begin(), names.end());
  const std::vector<std::string_view> views(names.begin(), names.end());
  const ModuleRules list = rules(Producer::compressed_tensors, texts);
  EXPECT_TRUE(list.report(views).empty());
  std::size_t listed = 0;
  for (const std::string& name : names) listed += list.judge(name).kind == Kind::whole ? 1 : 0;
  EXPECT_EQ(listed, 80U);
  EXPECT_LT(list.tries(), 8 * names.size());  // of 80 patterns a name
}

}  // namespace
}  // namespace fewbit
