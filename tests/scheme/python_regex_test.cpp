// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scheme/module_match.hpp"
#include "scheme/module_match_regex.hpp"

namespace fewbit {
namespace {

bool matches(const std::string& pattern, const std::string& text) {
  const auto regex = PythonRegex::compile(pattern, "test");
  EXPECT_TRUE(regex) << regex.error().message();
  if (!regex) return false;
  const auto result = regex->match(text);
  EXPECT_TRUE(result) << result.error().message();
  return result && *result;
}

TEST(PythonRegex, IsAnchoredAtTheStartOnly) {
  EXPECT_TRUE(matches("model", "model.layers"));
  EXPECT_FALSE(matches("layers", "model.layers"));
  EXPECT_FALSE(matches("model$", "model.layers"));
  EXPECT_TRUE(matches(R"(.*layers\Z)", "model.layers"));
  EXPECT_TRUE(matches("", "anything"));
  EXPECT_TRUE(matches("a|b", "bx"));
}

TEST(PythonRegex, ReadsPythonsConstructs) {
  EXPECT_TRUE(matches(R"(a\u002eb)", "a.b"));
  EXPECT_TRUE(matches(R"(a\x2eb)", "a.b"));
  EXPECT_TRUE(matches("a{,2}b", "aab"));
  EXPECT_FALSE(matches("a{,2}b", "aaab"));
  EXPECT_TRUE(matches("a{x}", "a{x}"));
  EXPECT_TRUE(matches("a{}", "a{}"));
  EXPECT_TRUE(matches("[]a]+$", "]a"));
  EXPECT_TRUE(matches("[[]x", "[x"));
  EXPECT_FALSE(matches("[[:alpha:]]", "b]"));  // a set of the seven characters, then ]
  EXPECT_TRUE(matches("[[:alpha:]]", "a]"));
  EXPECT_TRUE(matches(R"((?P<n>\d+)\.(?P=n)$)", "12.12"));
  EXPECT_FALSE(matches(R"((?P<n>\d+)\.(?P=n)$)", "12.13"));
  EXPECT_TRUE(matches("(?i)MODEL", "model"));
  EXPECT_TRUE(matches("(?#note)a", "a"));
  EXPECT_TRUE(matches(R"((?!.*experts).*)", "model.mlp"));
  EXPECT_FALSE(matches(R"((?!.*experts).*)", "model.experts.3"));
  EXPECT_FALSE(matches(R"(a\vb)", "a\nb"));  // \v is one character here, a class in PCRE2
}

// What PCRE2 would take and Python refuses, or reads in another way.
TEST(PythonRegex, RefusesByName) {
  for (const std::string pattern :
       {R"(\p{L})", R"(\Ka)", R"(a\Q.\E)", "(*FAIL)", "(?R)", "(?|a|b)", "(?P>n)", "(?(1)a|b)",
        "(?x) a", R"(\h)", R"(\z)", "a\\", "[a", R"(\x4)", R"(\u12)", "(?<n>a)", R"(\10)"}) {
    const auto regex = PythonRegex::compile(pattern, "the list");
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::unsupported) << pattern;
    EXPECT_EQ(regex.error().where, "the list");
    EXPECT_NE(regex.error().what.find("at byte"), std::string::npos) << regex.error().what;
  }
}

TEST(PythonRegex, SyntaxErrorsNameTheirPlace) {
  for (const std::string pattern : {"*a", "(a", "a)", "[b-a]", "(?P=none)"}) {
    const auto regex = PythonRegex::compile(pattern, "the list");
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::corrupt) << pattern;
  }
  EXPECT_EQ(PythonRegex::compile(std::string(20000, 'a'), "x").error().code, ErrorCode::limit);
}

TEST(PythonRegex, EndlessBacktrackingIsAnError) {
  const auto regex = PythonRegex::compile("(a+)+b", "the list");
  ASSERT_TRUE(regex);
  const auto result = regex->match(std::string(60, 'a') + "cb");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::limit);
  EXPECT_NE(result.error().what.find("(a+)+b"), std::string::npos);
}

TEST(PythonRegex, TellsHowManyStepsAMatchTakesAtMost) {
  const auto cheap = PythonRegex::compile(".*gate", "the list");
  const auto costly = PythonRegex::compile("(?=(?:.*.*)!)", "the list");
  ASSERT_TRUE(cheap && costly);
  std::uint64_t few = 0;
  std::uint64_t many = 0;
  const std::string name = "model.layers.30.mlp.experts.126.gate_proj";
  EXPECT_TRUE(*cheap->match(name, few));
  EXPECT_FALSE(*costly->match(name, many));
  EXPECT_GT(few, 0U);
  EXPECT_LT(few, 200U);
  EXPECT_GT(many, 800U);  // 41 * 42 / 2 ways to divide the name
}

// What finds no room is compiled for every match, with the same result, and paid for.
TEST(PythonRegex, CompiledPatternsTakeBoundedMemory) {
  const auto budget = std::make_shared<MatchBudget>(std::uint64_t{1} << 36);
  const std::string large = R"(m(?:ab?){0,2000})";
  std::vector<PythonRegex> many;
  std::size_t recompiled = 0;
  for (int i = 0; i < 500; ++i) {
    auto regex = PythonRegex::compile(large + std::to_string(i), "the list", budget);
    if (!regex) break;
    std::uint64_t steps = 0;
    EXPECT_TRUE(*regex->match("maba" + std::to_string(i), steps));
    EXPECT_FALSE(*regex->match("maba!", steps));
    recompiled += steps > 100'000 ? 1 : 0;
    many.push_back(*std::move(regex));
  }
  EXPECT_FALSE(budget->has_room(std::size_t{1} << 20));
  EXPECT_GT(recompiled, 0U);
  EXPECT_LT(recompiled, many.size());
  many.clear();
  EXPECT_TRUE(budget->has_room(MatchBudget::most_kept_bytes));
}

TEST(PythonRegex, CompilingIsPaidFromTheBudget) {
  const auto budget = std::make_shared<MatchBudget>(1'000'000);
  std::string classes = "(?i)";
  for (int i = 0; i < 700; ++i) classes += R"([^\u0100-\uffffk])";
  const auto costly = PythonRegex::compile(classes, "the list", budget);
  ASSERT_FALSE(costly);
  EXPECT_EQ(costly.error().code, ErrorCode::limit);
  ASSERT_TRUE(PythonRegex::compile("(?i)[a-z]+", "the list", budget));
  ASSERT_FALSE(budget->spent());
  std::string groups;
  for (int i = 0; i < 3000; ++i) groups += "(a*)*";
  ASSERT_TRUE(PythonRegex::compile(groups, "the list", budget));
  ASSERT_TRUE(budget->spent());
  const auto after = PythonRegex::compile("a", "the list", budget);
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().code, ErrorCode::limit);
}

// A step may read a whole name, so that long names take fewer.
TEST(PythonRegex, LongNamesAreBoundedToo) {
  const auto regex = PythonRegex::compile("a*a*[!?]", "the list");
  ASSERT_TRUE(regex);
  std::uint64_t steps = 0;
  const auto result = regex->match(std::string(100'000, 'a'), steps);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::limit);
  EXPECT_GT(steps, 100'000U);
}

}  // namespace
}  // namespace fewbit
