// SPDX-License-Identifier: Apache-2.0
// Files that the tokenizer refuses, and what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fewbit/model.hpp"
#include "model/tiny_tokenizer.hpp"

namespace fewbit {
namespace {

using test::parse_json;
using test::TinyTokenizer;
using testing::HasSubstr;

Error open_error(const std::string& text) {
  const test::TemporaryFolder folder;
  const auto tokenizer = Tokenizer::open(folder.write("tokenizer.json", text));
  EXPECT_FALSE(tokenizer) << text;
  return tokenizer ? Error{} : tokenizer.error();
}

void expect_refused(const Json& json, ErrorCode code, const std::string& message) {
  const Error error = open_error(json.dump());
  EXPECT_EQ(error_code_name(error.code), std::string(error_code_name(code)));
  EXPECT_THAT(error.message(), HasSubstr(message));
  EXPECT_THAT(error.message(), HasSubstr("tokenizer.json"));
}

TEST(TokenizerErrors, AMissingFileIsNotFound) {
  const test::TemporaryFolder folder;
  const auto tokenizer = Tokenizer::open(folder.path() / "tokenizer.json");
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::not_found);
}

// Every prefix of the file is an error, never a smaller tokenizer.
TEST(TokenizerErrors, ATruncatedFileIsCorrupt) {
  const std::string text = TinyTokenizer{}.text();
  for (std::size_t size = 0; size < text.size(); size += 97) {
    EXPECT_EQ(open_error(text.substr(0, size)).code, ErrorCode::corrupt) << size;
  }
  EXPECT_EQ(open_error(text.substr(0, text.size() - 1)).code, ErrorCode::corrupt);
}

TEST(TokenizerErrors, UnknownComponentsAreNamed) {
  TinyTokenizer tiny;
  tiny.pre_tokenizer = parse_json(R"({"type":"Metaspace"})");
  expect_refused(tiny.json(), ErrorCode::unsupported, "pre_tokenizer \"Metaspace\"");
  tiny = TinyTokenizer{};
  tiny.pre_tokenizer = Json();
  expect_refused(tiny.json(), ErrorCode::unsupported, "no ByteLevel");
  tiny = TinyTokenizer{};
  tiny.normalizer = parse_json(R"({"type":"Lowercase"})");
  expect_refused(tiny.json(), ErrorCode::unsupported, "normalizer \"Lowercase\"");
  tiny = TinyTokenizer{};
  tiny.decoder = parse_json(R"({"type":"WordPiece"})");
  expect_refused(tiny.json(), ErrorCode::unsupported, "decoder \"WordPiece\"");
  tiny = TinyTokenizer{};
  tiny.post_processor = parse_json(R"({"type":"TemplateProcessing"})");
  expect_refused(tiny.json(), ErrorCode::unsupported, "post_processor \"TemplateProcessing\"");
  tiny = TinyTokenizer{};
  tiny.added.push_back(parse_json(R"({"id":300,"content":"x","single_word":true})"));
  expect_refused(tiny.json(), ErrorCode::unsupported, "single_word of added token \"x\"");
}

TEST(TokenizerErrors, OptionsOfTheModelThatChangeItsMeaningAreNamed) {
  const TinyTokenizer tiny;
  const auto with = [&](const char* key, Json value) {
    return with_model_member(tiny, key, std::move(value));
  };
  expect_refused(with("type", Json("Unigram")), ErrorCode::unsupported, "\"Unigram\"");
  expect_refused(with("byte_fallback", Json(true)), ErrorCode::unsupported, "byte_fallback true");
  expect_refused(with("dropout", Json(0.5)), ErrorCode::unsupported, "dropout 0.5");
  expect_refused(with("end_of_word_suffix", Json("</w>")), ErrorCode::unsupported,
                 "end_of_word_suffix \"</w>\"");
  expect_refused(with("continuing_subword_prefix", Json("##")), ErrorCode::unsupported,
                 "continuing_subword_prefix \"##\"");
}

TEST(TokenizerErrors, EveryIdAndMergeIsChecked) {
  const TinyTokenizer tiny;
  Json vocab = *tiny.json().find("model")->find("vocab");
  vocab.set("zz", Json(7));
  expect_refused(with_model_member(tiny, "vocab", vocab), ErrorCode::corrupt,
                 "token \"zz\" has id 7, which another token has too");
  vocab.set("zz", Json(-1));
  expect_refused(with_model_member(tiny, "vocab", vocab), ErrorCode::corrupt, "has id -1");
  vocab.set("zz", Json(std::int64_t{1} << 40));
  expect_refused(with_model_member(tiny, "vocab", vocab), ErrorCode::corrupt,
                 "has id 1099511627776, expected an integer from 0 to 4194303");
  expect_refused(with_model_member(tiny, "merges", parse_json(R"([["a","b"]])")),
                 ErrorCode::corrupt, "merge 0 (\"a\" + \"b\") needs token \"ab\"");
  expect_refused(with_model_member(tiny, "merges", parse_json(R"(["h e","a b c"])")),
                 ErrorCode::corrupt, "merge 1 is");
  expect_refused(with_model_member(tiny, "merges", parse_json(R"({"a":1})")), ErrorCode::corrupt,
                 "model.merges");
}

TEST(TokenizerErrors, AddedTokensMustNotTakeAnIdTwice) {
  TinyTokenizer tiny;
  tiny.added = {parse_json(R"({"id":65,"content":"<x>"})")};
  expect_refused(tiny.json(), ErrorCode::corrupt,
                 "added token \"<x>\" has id 65, which another token of the vocabulary has");
  tiny.added = {parse_json(R"({"id":66,"content":"A"})")};
  expect_refused(tiny.json(), ErrorCode::corrupt,
                 "added token \"A\" has id 66, in the vocabulary 65");
  tiny.added = {parse_json(R"({"id":500,"content":"<x>"})"),
                parse_json(R"({"id":500,"content":"<y>"})")};
  expect_refused(tiny.json(), ErrorCode::corrupt, "with id 500 is there twice");
}

TEST(TokenizerErrors, AByteWithoutTokenIsAnErrorOfTheText) {
  TinyTokenizer tiny;
  Json::Object kept;
  const Json root = tiny.json();
  for (const auto& member : *root.find("model")->find("vocab")->as_object()) {
    if (member.first != "q") kept.push_back(member);
  }
  const Json json = with_model_member(tiny, "vocab", Json(kept));
  const test::TemporaryFolder folder;
  const auto tokenizer = Tokenizer::open(folder.write("tokenizer.json", json.dump()));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_TRUE(tokenizer->encode("hello"));
  const auto ids = tokenizer->encode("quick");
  ASSERT_FALSE(ids);
  EXPECT_THAT(ids.error().message(), HasSubstr("no token for byte 113"));
}

}  // namespace
}  // namespace fewbit
