// SPDX-License-Identifier: Apache-2.0
// Patterns of tokenizer files keep their meaning.
#include "model/tokenizer_pattern.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/quote.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  std::vector<std::string> found;
  auto compiled = TokenizerPattern::compile(pattern, TokenizerPattern::Kind::regex, "test");
  if (!compiled) return {compiled.error().message()};
  TokenizerPattern::Search search(*compiled, text);
  for (;;) {
    const auto match = search.next();
    if (!match) return {match.error().message()};
    if (!*match) return found;
    found.emplace_back(text.substr((*match)->begin, (*match)->end - (*match)->begin));
  }
}

TEST(TokenizerPattern, CaseInsensitiveGroupsAndLookaheadWork) {
  EXPECT_THAT(matches("(?i:'s|'re)|[a-z]+", "it'S we'Re"), ElementsAre("it", "'S", "we", "'Re"));
  EXPECT_THAT(matches(R"(\s+(?!\S)|\s+)", "a   b  "), ElementsAre("  ", " ", "  "));
}

// U+180E is no white space; PCRE2's own \s has it.
TEST(TokenizerPattern, SpaceIsUnicodeWhiteSpace) {
  EXPECT_THAT(matches(R"(\s)", "\u180e\u3000\u0085\u200b"), ElementsAre("\u3000", "\u0085"));
  EXPECT_THAT(matches(R"([^\s])", "\u180e\u3000"), ElementsAre("\u180e"));
  EXPECT_THAT(matches(R"([\S])", "\u180e\u3000"), ElementsAre("\u180e"));
  EXPECT_THAT(matches(R"(\S)", "\u180e\u3000"), ElementsAre("\u180e"));
}

// A combining mark belongs to a word; PCRE2's own \w leaves it out.
TEST(TokenizerPattern, WordCharactersIncludeMarks) {
  EXPECT_THAT(matches(R"(\w+)", "e\u0301a_1-"), ElementsAre("e\u0301a_1"));
  EXPECT_THAT(matches(R"(\W+)", "e\u0301a_1-"), ElementsAre("-"));
}

TEST(TokenizerPattern, CategoriesAndScripts) {
  EXPECT_THAT(matches(R"(\p{N}{1,3})", "12345\u00bd"), ElementsAre("123", "45\u00bd"));
  EXPECT_THAT(matches(R"([^\r\n\p{L}\p{N}]?\p{L}+)", " \u65e5\u672c"),
              ElementsAre(" \u65e5\u672c"));
  EXPECT_THAT(matches(R"(\p{^L}+)", "ab-1"), ElementsAre("-1"));
  // U+3001 is common punctuation that Han's script extensions list.
  EXPECT_THAT(matches(R"(\p{Han}+)", "\u65e5\u3001"), ElementsAre("\u65e5"));
}

TEST(TokenizerPattern, RubySpellings) {
  EXPECT_THAT(matches(R"(a{,2}b)", "aab"), ElementsAre("aab"));
  EXPECT_THAT(matches(R"({x})", "{x}"), ElementsAre("{x}"));
  EXPECT_THAT(matches(R"([一-龥]|\x{41}|\x42)", "\u4e01AB"), ElementsAre("\u4e01", "A", "B"));
  EXPECT_THAT(matches("\\u0043", "C"), ElementsAre("C"));
  EXPECT_THAT(matches(R"(\v)", "\n\x0b"), ElementsAre("\x0b"));
}

TEST(TokenizerPattern, EmptyMatchesMoveOn) {
  EXPECT_THAT(matches("b*", "abb\u00e9"), ElementsAre("", "bb", ""));
}

// What could mean something else in the reference syntax is refused, not guessed.
TEST(TokenizerPattern, DoubtfulConstructsAreRefusedByName) {
  for (const char* pattern :
       {R"(\bword)", R"(a{2}+)", R"((?m:.))", R"((?<n>a))", R"((a)\1)", R"([a[b]])", R"([a&&b])",
        R"([\W])", R"([\s-z])", R"(\h)", R"(\R)", R"(\pL)", R"(\x)", R"(\x80)", R"((*UCP)a)",
        R"([)", R"([])", R"(\)"}) {
    const auto compiled = TokenizerPattern::compile(pattern, TokenizerPattern::Kind::regex, "here");
    ASSERT_FALSE(compiled) << pattern;
    EXPECT_EQ(compiled.error().code, ErrorCode::unsupported) << pattern;
    EXPECT_THAT(compiled.error().message(), HasSubstr(quote(pattern)));
    EXPECT_EQ(compiled.error().where, "here");
  }
  EXPECT_THAT(matches("(a", ""), ElementsAre(HasSubstr("parenthes")));
}

// Backtracking that doubles with each letter ends in an error, not in hours.
TEST(TokenizerPattern, RunawayBacktrackingIsStopped) {
  EXPECT_THAT(matches("(?:a|a)*b|(?:a+)+c", std::string(64, 'a') + "!"),
              ElementsAre(HasSubstr("limit")));
}

}  // namespace
}  // namespace fewbit
