// SPDX-License-Identifier: Apache-2.0
// What translating a dialect of regular expressions into PCRE2's has in common: a walk over the
// pattern that hands escapes, classes, groups and braces to the dialect and copies the rest.
#pragma once

#include <fmt/format.h>

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "core/quote.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// What {,} and {2}+ mean in a dialect.
struct BraceRules {
  bool bare_comma_repeats = false;  // {,} is {0,}, else a literal
  bool possessive = false;          // {2}+ never gives back, as in PCRE2; else it is refused
};

// A dialect derives from this with escape(), character_class() and group(), each of which is called
// at its first byte and goes on behind its last.
template <class Dialect>
class PatternTranslator {
 public:
  // Errors unsupported: a construct that the dialect refuses, with its position.
  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        FEWBIT_TRY(dialect().escape());
      } else if (c == '[') {
        FEWBIT_TRY(dialect().character_class());
      } else if (c == '(') {
        FEWBIT_TRY(dialect().group());
      } else if (c == '{') {
        FEWBIT_TRY(brace());
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 protected:
  PatternTranslator(std::string_view pattern, const std::string& where, BraceRules braces)
      : pattern_(pattern), where_(where), braces_(braces) {}

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
  static bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
  static bool is_punctuation(char c) {
    return static_cast<unsigned char>(c) < 0x80 && c != '\0' && !is_letter(c) && !is_digit(c);
  }

  char peek(std::size_t ahead) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  void copy(std::size_t count) {
    out_.append(pattern_.substr(at_, count));
    at_ += count;
  }
  void replace(std::size_t count, std::string_view with) {
    out_ += with;
    at_ += count;
  }
  Error refuse(std::string_view construct) const {
    return Error{
        ErrorCode::unsupported,
        fmt::format("{} at byte {} of the pattern {}", quote(construct), at_, quote(pattern_)),
        where_};
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;

 private:
  Dialect& dialect() { return static_cast<Dialect&>(*this); }

  // {n}, {n,}, {n,m}, {,m} repeat; any other brace is a literal in all dialects.
  Result<void> brace() {
    std::size_t end = at_ + 1;
    int commas = 0;
    while (end < pattern_.size() && (is_digit(pattern_[end]) || pattern_[end] == ',')) {
      commas += pattern_[end] == ',' ? 1 : 0;
      ++end;
    }
    const bool closed = end < pattern_.size() && pattern_[end] == '}';
    const std::size_t least = braces_.bare_comma_repeats ? 1 : 1 + static_cast<std::size_t>(commas);
    if (!closed || end < at_ + 1 + least || commas > 1) {
      replace(1, R"(\{)");
      return {};
    }
    const std::size_t length = end + 1 - at_;
    if (!braces_.possessive && peek(length) == '+') return refuse(pattern_.substr(at_, length + 1));
    if (peek(1) == ',') {
      replace(1, "{0");
      copy(length - 1);
    } else {
      copy(length);
    }
    return {};
  }

  const std::string& where_;
  BraceRules braces_;
};

}  // namespace fewbit
