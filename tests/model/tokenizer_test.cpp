// SPDX-License-Identifier: Apache-2.0
// What the tokenizer makes of text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "fewbit/model.hpp"
#include "model/tiny_tokenizer.hpp"
#include "model/utf8.hpp"

namespace fewbit {
namespace {

using test::TemporaryFolder;
using test::TinyTokenizer;
using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

class TokenizerTest : public testing::Test {
 protected:
  Tokenizer open(const Json& json) {
    auto tokenizer = Tokenizer::open(folder_.write("tokenizer.json", json.dump()));
    EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().message());
    return *std::move(tokenizer);
  }
  Tokenizer open(const TinyTokenizer& tiny) { return open(tiny.json()); }

  static Ids encode(const Tokenizer& tokenizer, std::string_view text) {
    auto ids = tokenizer.encode(text);
    EXPECT_TRUE(ids) << (ids ? "" : ids.error().message());
    return ids ? *ids : Ids{-1};
  }

  TemporaryFolder folder_;
};

TEST_F(TokenizerTest, MergesByRankAndThenFromTheLeft) {
  const Tokenizer tokenizer = open(TinyTokenizer{});
  EXPECT_THAT(encode(tokenizer, "hello"), ElementsAre(259));
  EXPECT_THAT(encode(tokenizer, "hell"), ElementsAre(258));
  EXPECT_THAT(encode(tokenizer, "aaaaa"), ElementsAre(262, 'a'));
  EXPECT_THAT(encode(tokenizer, "aaaaaaa"), ElementsAre(262, 261, 'a'));
  EXPECT_THAT(encode(tokenizer, "hello w"), ElementsAre(259, 260));
  EXPECT_THAT(encode(tokenizer, ""), ElementsAre());
  EXPECT_EQ(tokenizer.vocab_size(), 1002);
}

TEST_F(TokenizerTest, MergesAsOneStringMeanTheSame) {
  const TinyTokenizer tiny;
  Json list{Json::Array{}};
  for (const auto& [left, right] : tiny.merges) list.push_back(Json(left + " " + right));
  const Tokenizer tokenizer = open(with_model_member(tiny, "merges", std::move(list)));
  EXPECT_EQ(encode(tokenizer, "hello world aaaa"), encode(open(tiny), "hello world aaaa"));
}

TEST_F(TokenizerTest, IgnoreMergesTakesAWholeWordOfTheVocabulary) {
  TinyTokenizer tiny;
  tiny.merges = {{"a", "b"}, {"b", "c"}, {"ab", "c"}};
  EXPECT_THAT(encode(open(tiny), "abc"), ElementsAre(258));
  tiny.merges = {{"b", "c"}, {"a", "b"}, {"ab", "c"}};  // bc first: abc can't be reached
  EXPECT_THAT(encode(open(tiny), "abc"), ElementsAre('a', 256));
  const Tokenizer whole = open(with_model_member(tiny, "ignore_merges", Json(true)));
  EXPECT_THAT(encode(whole, "abc"), ElementsAre(258));
}

TEST_F(TokenizerTest, AddedTokensStandAloneLongestFirst) {
  TinyTokenizer tiny;
  tiny.added.push_back(test::parse_json(R"({"id":1002,"content":"<eos>>"})"));
  const Tokenizer tokenizer = open(tiny);
  EXPECT_THAT(encode(tokenizer, "hello<eos>hello"), ElementsAre(259, 1000, 259));
  EXPECT_THAT(encode(tokenizer, "<eos>><eos"), ElementsAre(1002, '<', 'e', 'o', 's'));
  EXPECT_THAT(encode(tokenizer, "<<tool>"), ElementsAre('<', 1001));
}

TEST_F(TokenizerTest, AddedTokensStripTheSpaceAroundThem) {
  TinyTokenizer tiny;
  tiny.added = {test::parse_json(R"({"id":300,"content":"<m>","lstrip":true,"rstrip":true})")};
  // U+00A0 and U+3000 are white space, U+200B is not.
  EXPECT_THAT(encode(open(tiny), "a \n\u00a0<m>\u3000 b"), ElementsAre('a', 300, 'b'));
  EXPECT_THAT(encode(open(tiny), "<m> \u200b"), ElementsAre(300, 0xE2, 0x80, 0x8B));
}

TEST_F(TokenizerTest, SpecialTokensAreSkippedUnlessAskedFor) {
  const Tokenizer tokenizer = open(TinyTokenizer{});
  const Ids ids = {259, 1000, 1001, 260};
  EXPECT_EQ(*tokenizer.decode(ids), "hello<tool> w");
  EXPECT_EQ(*tokenizer.decode(ids, true), "hello<eos><tool> w");
}

TEST_F(TokenizerTest, DecodeMayEndInsideACharacter) {
  EXPECT_EQ(*open(TinyTokenizer{}).decode(Ids{0xE2, 0x82}), "\xE2\x82");
}

TEST_F(TokenizerTest, DecodeNamesAnIdOutsideTheVocabulary) {
  const auto decoded = open(TinyTokenizer{}).decode(Ids{65, 999});
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(decoded.error().message(), testing::HasSubstr("id 999 is not in the vocabulary"));
}

TEST_F(TokenizerTest, PrefixSpaceIsAddedOnlyWhereThereIsNone) {
  TinyTokenizer tiny;
  tiny.pre_tokenizer = test::parse_json(R"({"type":"ByteLevel","add_prefix_space":true})");
  const Tokenizer tokenizer = open(tiny);
  EXPECT_EQ(encode(tokenizer, "w"), encode(tokenizer, " w"));
  EXPECT_THAT(encode(tokenizer, "w"), ElementsAre(260));
  EXPECT_THAT(encode(tokenizer, "<tool>w"), ElementsAre(1001, 260));
}

// ByteLevel's pattern keeps a contraction, a word with its space, numbers and spaces apart; with
// use_regex false a merge may cross them.
TEST_F(TokenizerTest, WordsBoundTheMerges) {
  TinyTokenizer tiny;
  tiny.merges = {{"o", "1"}, {"n", "'"}, {"Ġ", "Ġ"}};
  const Tokenizer words = open(tiny);
  EXPECT_THAT(encode(words, "o1"), ElementsAre('o', '1'));
  EXPECT_THAT(encode(words, "n's"), ElementsAre('n', '\'', 's'));
  EXPECT_THAT(encode(words, "   x"), ElementsAre(258, ' ', 'x'));
  tiny.pre_tokenizer =
      test::parse_json(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})");
  const Tokenizer whole = open(tiny);
  EXPECT_THAT(encode(whole, "o1n'"), ElementsAre(256, 257));
}

TEST_F(TokenizerTest, SplitRemovesMatchesOrWhatIsBetween) {
  TinyTokenizer tiny;
  const std::string tail = R"(,{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  const std::string head =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":"-"},)";
  tiny.pre_tokenizer = test::parse_json(head + R"("behavior":"Removed"})" + tail);
  EXPECT_THAT(encode(open(tiny), "a-b"), ElementsAre('a', 'b'));
  tiny.pre_tokenizer = test::parse_json(head + R"("behavior":"Removed","invert":true})" + tail);
  EXPECT_THAT(encode(open(tiny), "a-b"), ElementsAre('-'));
}

TEST_F(TokenizerTest, DigitsStandAloneOrTogether) {
  TinyTokenizer tiny;
  tiny.merges = {{"1", "2"}, {"a", "1"}};
  const auto digits = [](const std::string& individual) {
    return test::parse_json(
        R"({"type":"Sequence","pretokenizers":[{"type":"Digits",)"
        R"("individual_digits":)" +
        individual + R"(},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})");
  };
  tiny.pre_tokenizer = digits("true");
  EXPECT_THAT(encode(open(tiny), "a12"), ElementsAre('a', '1', '2'));
  tiny.pre_tokenizer = digits("false");
  EXPECT_THAT(encode(open(tiny), "a12"), ElementsAre('a', 256));
}

TEST_F(TokenizerTest, NfcComposesTextButNotWhatAddedTokensMatch) {
  TinyTokenizer tiny;
  tiny.normalizer = test::parse_json(R"({"type":"NFC"})");
  tiny.added = {test::parse_json(R"({"id":300,"content":"<e\u0301>"})"),
                test::parse_json(R"({"id":301,"content":"[e\u0301]","normalized":true})")};
  const Tokenizer tokenizer = open(tiny);
  EXPECT_THAT(encode(tokenizer, "e\u0301"), ElementsAre(0xC3, 0xA9));
  EXPECT_THAT(encode(tokenizer, "<e\u0301>"), ElementsAre(300));
  EXPECT_THAT(encode(tokenizer, "[\u00e9][e\u0301]"), ElementsAre(301, 301));
}

// Sequences of table 3-8 of the Unicode standard, each at the byte after a well-formed one.
TEST_F(TokenizerTest, TextThatIsNotUtf8IsRefusedWithThePlace) {
  const Tokenizer tokenizer = open(TinyTokenizer{});
  for (const std::string_view bad :
       {"\xF1\x80\x80", "\xE1\x80", "\xC2", "\x80", "\xBF", "\xED\xA0\x80", "\xC0\xAF", "\xFF"}) {
    const std::string text = "\u00e9" + std::string(bad) + "a";
    const auto ids = tokenizer.encode(text);
    ASSERT_FALSE(ids) << bad;
    EXPECT_EQ(ids.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(ids.error().what, testing::StartsWith("byte 2 of " + std::to_string(text.size())));
  }
}

// decode(encode(x)) == x for any text without special tokens.
TEST_F(TokenizerTest, RandomUnicodeSurvivesTheRoundTrip) {
  const Tokenizer tokenizer = open(TinyTokenizer{});
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    const auto length = random() % 60;
    for (std::size_t i = 0; i < length; ++i) {
      const char32_t range = std::array<char32_t, 4>{0x80, 0x800, 0x10000, 0x110000}[random() % 4];
      const auto c = static_cast<char32_t>(random() % range);
      if (c < 0xD800 || c > 0xDFFF) append_utf8(c, text);
      if (random() % 4 == 0) text += " hello \r\n\t  aaaa"[random() % 16];
    }
    EXPECT_EQ(*tokenizer.decode(encode(tokenizer, text)), text);
  }
}

// Work stays near linear for a word of a million bytes; quadratic merging would take minutes.
TEST_F(TokenizerTest, OneLongRunEndsQuickly) {
  const Tokenizer tokenizer = open(TinyTokenizer{});
  const auto start = std::chrono::steady_clock::now();
  const Ids letters = encode(tokenizer, std::string(1 << 20, 'a'));
  EXPECT_EQ(letters, Ids(std::size_t{1} << 18, 262));
  EXPECT_EQ(encode(tokenizer, std::string(1 << 20, ' ') + "w").size(), std::size_t{1} << 20);
  EXPECT_EQ(encode(tokenizer, std::string(1 << 20, '\n')).size(), std::size_t{1} << 20);
  EXPECT_EQ(encode(tokenizer, std::string(1 << 20, '<')).size(), std::size_t{1} << 20);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace fewbit
