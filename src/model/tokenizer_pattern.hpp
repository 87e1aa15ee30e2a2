// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer files, and their search.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fewbit/result.hpp"

namespace fewbit {

// Rewrites a pattern of tokenizer files (Oniguruma, Ruby syntax, Unicode) for PCRE2 (UTF, UCP,
// MULTILINE) so that both match the same text. What differs is spelled out: \s (PCRE2 counts
// U+180E as space), \w (PCRE2 leaves out marks), \v, \uXXXX, {,n}, scripts (PCRE2 takes script
// extensions). Characters younger than PCRE2's Unicode version (10.42: 14) count as unassigned.
// Error unsupported names a construct whose meaning could differ.
Result<std::string> translate_pattern(std::string_view pattern, const std::string& where);

class TokenizerPattern {
 public:
  enum class Kind { regex, literal };
  // Error unsupported (a construct, by name), corrupt (no pattern at all), limit (length).
  static Result<TokenizerPattern> compile(std::string_view pattern, Kind kind,
                                          const std::string& where);
  TokenizerPattern(TokenizerPattern&&) noexcept;
  TokenizerPattern& operator=(TokenizerPattern&&) noexcept;
  ~TokenizerPattern();

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // Walks the matches of one text in order. An empty match right behind the last one is skipped.
  class Search {
   public:
    // text: valid UTF-8, outlives the search.
    Search(const TokenizerPattern& pattern, std::string_view text);
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;
    ~Search();
    // Empty at the end. Error limit when the pattern backtracks without bound on this text.
    Result<std::optional<Match>> next();

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct State;
  explicit TokenizerPattern(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fewbit
