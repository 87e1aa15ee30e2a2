// SPDX-License-Identifier: Apache-2.0
// Added and special tokens: pieces of text that are one id, whatever stands around them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/result.hpp"
#include "model/tokenizer_bpe.hpp"

namespace fewbit {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;  // looked for in normalized text
  bool strip_left = false;  // takes the white space before it
  bool strip_right = false;
};

// The "added_tokens" of a tokenizer.json, checked against the vocabulary. Errors: corrupt (an id
// that another token has), unsupported (single_word), limit.
Result<std::vector<AddedToken>> read_added_tokens(const Json& root, const BpeModel& model,
                                                  const std::string& where);

// Finds tokens in text: leftmost first, then longest.
class AddedTokenMatcher {
 public:
  struct Piece {
    std::string_view text;
    std::int32_t id = -1;  // -1: ordinary text
  };
  void add(const AddedToken& token);
  std::vector<Piece> split(std::string_view text) const;

 private:
  struct Node {
    std::int32_t token = -1;  // index into tokens_
  };
  std::uint32_t child(std::uint32_t node, char byte) const;
  // Index and length of the longest token that begins at `at`.
  struct Found {
    std::int32_t token = -1;
    std::size_t bytes = 0;
  };
  Found longest(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = {Node{}};                      // a trie; 0 is the root
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // (node, byte) -> node
};

}  // namespace fewbit
