// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/tokenizer_pattern.hpp"
#include "scheme/pattern_translator.hpp"

namespace fewbit {
namespace {

// Unicode White_Space and its complement, as members of a class.
constexpr const char* space_members =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* not_space_members =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr const char* word_members = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

class OnigurumaDialect : public PatternTranslator<OnigurumaDialect> {
 public:
  OnigurumaDialect(std::string_view pattern, const std::string& where)
      : PatternTranslator(pattern, where, {}) {}

 private:
  friend PatternTranslator;

  // Groups without side effects on the rest of the pattern; (?m:, (?<name>, \1 … differ.
  Result<void> group() {
    static constexpr std::array<std::string_view, 8> known = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (peek(1) != '?' && peek(1) != '*') {
      copy(1);
      return {};
    }
    const auto* found = std::find_if(known.begin(), known.end(), [&](std::string_view prefix) {
      return pattern_.substr(at_).starts_with(prefix);
    });
    if (found == known.end()) return refuse(pattern_.substr(at_, 4));
    copy(found->size());
    return {};
  }

  Result<void> character_class() {
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') return refuse("[]");
    in_class_ = true;
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        FEWBIT_TRY(escape());
      } else if (pattern_[at_] == '[') {
        return refuse("[ inside a class");
      } else if (peek(0) == '&' && peek(1) == '&') {
        return refuse("&&");
      } else {
        copy(1);
      }
    }
    if (at_ == pattern_.size()) return refuse("[ without ]");
    in_class_ = false;
    copy(1);
    return {};
  }

  Result<void> escape() {
    const char c = peek(1);
    switch (c) {
      case 's':
        return members(space_members, true);
      case 'S':
        return in_class_ ? members(not_space_members, true) : members(space_members, false);
      case 'w':
        return members(word_members, true);
      case 'W':
        if (in_class_) return refuse(R"(\W inside a class)");
        return members(word_members, false);
      case 'd':
        return members(R"(\p{Nd})", true);
      case 'D':
        return members(R"(\P{Nd})", true);
      case 'p':
      case 'P':
        return property();
      case 'x':
      case 'u':
        return code_point();
      case 'v':
        replace(2, R"(\x0b)");
        return {};
      default:
        return single_character(c);
    }
  }

  // Escapes that both syntaxes read alike.
  Result<void> single_character(char c) {
    const bool control = std::string_view("tnrfae").find(c) != std::string_view::npos;
    const bool anchor = !in_class_ && (c == 'A' || c == 'z');
    if (!is_punctuation(c) && !control && !anchor) return refuse(pattern_.substr(at_, 2));
    copy(2);
    return {};
  }

  // A set in place of the two bytes of an escape.
  Result<void> members(std::string_view set, bool positive) {
    if (in_class_) {
      if (peek(2) == '-' && peek(3) != ']') return refuse(pattern_.substr(at_, 4));
      out_ += set;
    } else {
      out_ += fmt::format("[{}{}]", positive ? "" : "^", set);
    }
    at_ += 2;
    return {};
  }

  // \p{L}, \p{^Lu}: general categories. Longer names are scripts, without their extensions.
  Result<void> property() {
    if (peek(2) != '{') return refuse(pattern_.substr(at_, 2));
    const std::size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return refuse(pattern_.substr(at_));
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    bool negated = peek(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_letter)) {
      return refuse(pattern_.substr(at_, close + 1 - at_));
    }
    out_ += fmt::format(R"(\{}{{{}{}}})", negated ? 'P' : 'p', name.size() > 2 ? "sc:" : "", name);
    at_ = close + 1;
    return {};
  }

  // \xHH, \x{H…}, \uHHHH
  Result<void> code_point() {
    const bool braces = peek(1) == 'x' && peek(2) == '{';
    const std::size_t begin = braces ? 3 : 2;
    const std::size_t most = braces ? 6 : peek(1) == 'x' ? 2 : 4;
    std::size_t digits = 0;
    while (digits < most && is_hex(peek(begin + digits))) ++digits;
    const bool complete = braces ? digits > 0 && peek(begin + digits) == '}' : digits == most;
    if (!complete) return refuse(pattern_.substr(at_, begin + digits + 1));
    const auto hex = pattern_.substr(at_ + begin, digits);
    // A byte of 0x80 or more would be part of a sequence in one syntax, a code point in the other.
    if (!braces && most == 2 && hex[0] >= '8') return refuse(pattern_.substr(at_, 4));
    out_ += fmt::format(R"(\x{{{}}})", hex);
    at_ += begin + digits + (braces ? 1 : 0);
    return {};
  }
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern, const std::string& where) {
  return OnigurumaDialect(pattern, where).run();
}

}  // namespace fewbit
