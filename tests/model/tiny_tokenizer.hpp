// SPDX-License-Identifier: Apache-2.0
// A small tokenizer.json made in memory: 256 byte tokens (id = byte), a few merges, two added
// tokens; tests change one part of it at a time.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/json.hpp"

namespace fewbit::test {

// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

struct TinyTokenizer {
  // Each pair's merged token gets the next id from 256 on. Spaces are spelled "Ġ".
  std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "w"}, {"a", "a"}, {"aa", "aa"}};
  Json pre_tokenizer;  // ByteLevel with its own pattern, no space before
  Json normalizer;     // null
  Json decoder;        // ByteLevel
  Json post_processor;
  Json::Array added;  // <eos> (special), <tool>

  TinyTokenizer();
  Json json() const;
  std::string text() const { return json().dump(); }
};

Json parse_json(const std::string& text);
// tokenizer.json with one member of "model" replaced.
Json with_model_member(const TinyTokenizer& tokenizer, const std::string& key, Json value);

}  // namespace fewbit::test
