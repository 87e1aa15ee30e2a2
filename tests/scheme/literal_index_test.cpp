// SPDX-License-Identifier: Apache-2.0
#include "scheme/literal_index.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scheme/integer_rules.hpp"
#include "scheme/required_literal.hpp"

namespace fewbit {
namespace {

TEST(RequiredLiteral, IsTextThatEveryMatchHas) {
  for (const auto& [pattern, literal] : std::vector<std::pair<const char*, const char*>>{
           {R"(model\.layers\.3\.mlp)", "model.layers.3.mlp"},
           {".*mlp.gate$", "gate"},
           {".*?(?:self_attn)", "self_attn"},
           {"a(?:bc|bd)e", "a"},
           {"abc|abd", ""},
           {"(?:abc)?d", "d"},
           {"(?:abc){0,2}de", "de"},
           {"abcd*e", "abc"},
           {"abcd{0}e", "abc"},
           {"abcd+e", "abcd"},
           {"(?=abc)d", "d"},
           {"(?!abc)d", "d"},
           {R"(ab\d+cde)", "cde"},
           {"x[^]abc]yz", "yz"},
           {R"(\x41bcd)", ""},
           {"(?i)abc", ""},
           {"(?i:abc)d", ""},
           {"(a)(?P=b)", ""},
           {"ab(c", ""},
           {"a{2", ""}}) {
    EXPECT_EQ(required_literal(PatternKind::regex, pattern), literal) << pattern;
  }
  EXPECT_EQ(required_literal(PatternKind::glob, "*layer.?.self_attn[ab]*up"), ".self_attn");
  EXPECT_EQ(required_literal(PatternKind::glob, "a[!]bcd]e"), "a");
  EXPECT_EQ(required_literal(PatternKind::glob, "ab[cde"), "ab");
  EXPECT_EQ(required_literal(PatternKind::substring, "mlp.gate"), "mlp.gate");
}

// Against a search for each literal.
TEST(LiteralIndex, FindsWhatTheTextHas) {
  std::vector<std::string> literals = {"",      "ab",  "gate", "mlp.gate", "layers.1.mlp.gate",
                                       "gatee", ".3.", ".7"};
  for (int i = 0; i < 30; ++i) literals.push_back(fmt::format("model.layers.{}.", i));
  const LiteralIndex index(literals);
  for (const std::string text :
       {"", "ab", "gat", "gate", "model.layers.1.mlp.gate", "x.model.layers.21.mlp.gate_proj",
        "model.layers.2", "a.3.b.7", ".3"}) {
    std::vector<std::size_t> found;
    for (const std::size_t number : index.candidates(text)) {
      if (number > 0) found.push_back(number);
    }
    std::vector<std::size_t> want;
    for (std::size_t i = 1; i < literals.size(); ++i) {
      if (text.find(literals[i]) != std::string::npos) want.push_back(i);
    }
    EXPECT_EQ(found, want) << text;
  }
}

IntegerRules thousand_rules() {
  IntegerRules out;
  for (int i = 0; i < 1000; ++i) {
    const std::string regex =
        fmt::format(R"(model\.layers\.{}\.mlp\.experts\.{}\.up)", i / 50, i % 50);
    EXPECT_TRUE(out.add_pattern({.text = regex, .excludes = false, .spec = {}}, regex, "dynamic"));
  }
  return out;
}

TEST(IntegerRules, FewAreTriedAndTheFirstStillCounts) {
  const IntegerRules rules = thousand_rules();
  for (int again = 0; again < 2; ++again) {
    for (int i = 0; i < 1000; ++i) {
      const std::string name =
          fmt::format("model.layers.{}.mlp.experts.{}.up_proj", i / 50, i % 50);
      const IntegerRule* rule = rules.find(name);
      ASSERT_NE(rule, nullptr) << name;
      EXPECT_EQ(rule->text,
                fmt::format(R"(model\.layers\.{}\.mlp\.experts\.{}\.up)", i / 50, i % 50));
    }
  }
  EXPECT_EQ(rules.find("x.model.layers.1.mlp.experts.2.up_proj"), nullptr);
  constexpr std::uint64_t other_prefixes = 4;  // of the last name
  EXPECT_LE(rules.tries(), 1001U + other_prefixes);

  IntegerRules two;
  for (const std::string regex : {".*proj", ".*up_proj", R"(layers\.0)"}) {
    ASSERT_TRUE(two.add_pattern({.text = regex, .excludes = false, .spec = {}}, regex, "dynamic"));
  }
  EXPECT_EQ(two.find("layers.0.up_proj")->text, ".*proj");
  EXPECT_EQ(two.find("layers.0.gate")->text, R"(layers\.0)");
  EXPECT_EQ(two.find("layers.1.gate"), nullptr);
}

}  // namespace
}  // namespace fewbit
