// SPDX-License-Identifier: Apache-2.0
// Pre-tokenization: text into words, none of which a merge crosses.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/result.hpp"
#include "model/tokenizer_pattern.hpp"

namespace fewbit {

class WordSplitter {
 public:
  // The "pre_tokenizer" of a tokenizer.json: ByteLevel, alone or at the end of a Sequence of Split
  // and Digits. Errors: unsupported (anything else, by name), corrupt, limit.
  static Result<WordSplitter> read(const Json* pre_tokenizer, const std::string& where);

  // Words of one piece of text (valid UTF-8), as views into `text` or into `owned`.
  struct Words {
    std::deque<std::string> owned;
    std::vector<std::string_view> views;
  };
  Result<void> split(std::string_view text, Words& words) const;

 private:
  enum class Drop { nothing, matches, gaps };
  struct Step {
    std::optional<TokenizerPattern> pattern;
    Drop drop = Drop::nothing;
    bool prefix_space = false;  // a space before every word that has none
  };
  Result<void> add(const Json& node, const std::string& where);
  Result<void> add_split(const Json& node, const std::string& where);
  Result<void> add_byte_level(const Json& node, const std::string& where);
  Result<void> add_sequence(const Json& node, const std::string& where);
  static Result<void> apply(const Step& step, std::string_view word,
                            std::vector<std::string_view>& out);

  std::vector<Step> steps_;
  bool complete_ = false;  // ByteLevel was read; nothing may follow
};

}  // namespace fewbit
