// SPDX-License-Identifier: Apache-2.0
// Held to the ids that the reference library gives.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "checkpoint/json.hpp"
#include "fewbit/model.hpp"
#include "paths.hpp"

namespace fewbit {
namespace {

const std::filesystem::path bundled = tests::source_dir() / "models" / "tiny-moe";
const std::filesystem::path ids_file =
    tests::vectors_dir() / "models" / "tiny-moe" / "reference.json";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TokenizerReference, GivesTheIdsOfTheReferenceLibrary) {
  if (!std::filesystem::exists(ids_file)) {
    GTEST_SKIP() << ids_file << ", beside the project, is missing";
  }
  const auto tokenizer = Tokenizer::open(bundled / "tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  const auto reference = Json::parse(read_file(ids_file), "reference.json");
  ASSERT_TRUE(reference) << reference.error().message();
  const Json* cases = reference->find("tokenizer_cases");
  ASSERT_TRUE(cases != nullptr && cases->as_array() != nullptr && !cases->as_array()->empty());
  for (const Json& item : *cases->as_array()) {
    const std::string& text = *item.find("text")->as_string();
    std::vector<std::int32_t> expected;
    for (const Json& id : *item.find("ids")->as_array()) {
      expected.push_back(static_cast<std::int32_t>(*id.as_int64()));
    }
    EXPECT_EQ(*tokenizer->encode(text), expected) << text;
    EXPECT_EQ(*tokenizer->decode(expected, true), text);
  }
}

TEST(TokenizerReference, AWholeBookSurvivesTheRoundTrip) {
  const auto tokenizer = Tokenizer::open(bundled / "tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  const std::string text = read_file(bundled / "val.txt");
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(*tokenizer->decode(*tokenizer->encode(text)), text);
}

}  // namespace
}  // namespace fewbit
