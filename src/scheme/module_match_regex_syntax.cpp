// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "scheme/module_match_regex.hpp"
#include "scheme/pattern_translator.hpp"

namespace fewbit {
namespace {

class PythonDialect : public PatternTranslator<PythonDialect> {
 public:
  PythonDialect(std::string_view pattern, const std::string& where)
      : PatternTranslator(pattern, where, {.bare_comma_repeats = true, .possessive = true}) {}

  Result<std::string> translate() {
    FEWBIT_TRY(global_flags());
    return run();
  }

 private:
  friend PatternTranslator;

  // (?i) and its like, which Python takes only at the start. a and u choose what \w means.
  Result<void> global_flags() {
    if (!pattern_.starts_with("(?")) return {};
    std::size_t end = 2;
    while (end < pattern_.size() && is_letter(pattern_[end])) ++end;
    if (end == 2 || end == pattern_.size() || pattern_[end] != ')') return {};
    const std::string_view flags = pattern_.substr(2, end - 2);
    std::string kept;
    for (const char flag : flags) {
      if (flag == 'u') continue;
      if (std::string_view("ims").find(flag) == std::string_view::npos) {
        return refuse(pattern_.substr(0, end + 1));
      }
      kept += flag;
    }
    at_ = end + 1;
    if (!kept.empty()) out_ = fmt::format("(?{})", kept);
    return {};
  }

  // Verbs, recursion, callouts and conditions are no Python, or not read alike.
  Result<void> group() {
    static constexpr std::array<std::string_view, 10> known = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?P<", "(?P=", "(?i:", "(?-i:"};
    if (peek(1) == '*') return refuse("(*");
    if (peek(1) != '?') {
      copy(1);
      return {};
    }
    const std::string_view rest = pattern_.substr(at_);
    if (rest.starts_with("(?#")) {
      const std::size_t close = pattern_.find(')', at_);
      if (close == std::string_view::npos) return refuse("(?# without )");
      at_ = close + 1;
      return {};
    }
    const auto* found = std::find_if(known.begin(), known.end(), [&](std::string_view prefix) {
      return rest.starts_with(prefix);
    });
    if (found == known.end()) return refuse(rest.substr(0, 4));
    copy(found->size());
    return {};
  }

  // A ] right after the opening is a member, and [ is no special character inside.
  Result<void> character_class() {
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') {
      replace(1, R"(\])");
    }
    in_class_ = true;
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        FEWBIT_TRY(escape());
      } else if (pattern_[at_] == '[') {
        replace(1, R"(\[)");
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
    if (c == 'x' || c == 'u' || c == 'U') return code_point();
    if (c == 'v' || (c == 'Z' && !in_class_)) {
      replace(2, c == 'v' ? R"(\x0b)" : R"(\z)");
      return {};
    }
    const bool read_alike = std::string_view("dDsSwWafnrt").find(c) != std::string_view::npos ||
                            c == 'b' || (!in_class_ && (c == 'B' || c == 'A'));
    const bool reference = !in_class_ && c >= '1' && c <= '9' && !is_digit(peek(2));
    if (c == '\0' || (!is_punctuation(c) && !read_alike && !reference)) {
      return refuse(pattern_.substr(at_, 2));
    }
    copy(2);
    return {};
  }

  // \xHH, \uHHHH, \UHHHHHHHH
  Result<void> code_point() {
    const std::size_t wanted = peek(1) == 'x' ? 2 : peek(1) == 'u' ? 4 : 8;
    std::size_t digits = 0;
    while (digits < wanted && is_hex(peek(2 + digits))) ++digits;
    if (digits != wanted) return refuse(pattern_.substr(at_, 2 + digits));
    out_ += fmt::format(R"(\x{{{}}})", pattern_.substr(at_ + 2, digits));
    at_ += 2 + digits;
    return {};
  }
};

}  // namespace

Result<std::string> translate_python_regex(std::string_view pattern, const std::string& where) {
  return PythonDialect(pattern, where).translate();
}

}  // namespace fewbit
