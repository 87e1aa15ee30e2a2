// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/quote.hpp"
#include "scheme/module_match_regex.hpp"

namespace fewbit {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  Result<std::string> run() {
    FEWBIT_TRY(global_flags());
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        FEWBIT_TRY(escape());
      } else if (c == '[') {
        FEWBIT_TRY(character_class());
      } else if (c == '(') {
        FEWBIT_TRY(group());
      } else if (c == '{') {
        FEWBIT_TRY(brace());
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  char peek(std::size_t ahead) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  void copy(std::size_t count) {
    out_.append(pattern_.substr(at_, count));
    at_ += count;
  }
  Error refuse(std::string_view construct) const {
    return Error{
        ErrorCode::unsupported,
        fmt::format("{} at byte {} of the pattern {}", quote(construct), at_, quote(pattern_)),
        where_};
  }

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

  // {n}, {n,}, {,m}, {n,m}; any other brace is a literal in both syntaxes.
  Result<void> brace() {
    std::size_t end = at_ + 1;
    int commas = 0;
    while (end < pattern_.size() && (is_digit(pattern_[end]) || pattern_[end] == ',')) {
      commas += pattern_[end] == ',' ? 1 : 0;
      ++end;
    }
    const bool closed = end < pattern_.size() && pattern_[end] == '}';
    if (!closed || end == at_ + 1 || commas > 1) {
      out_ += R"(\{)";
      ++at_;
      return {};
    }
    const std::size_t length = end + 1 - at_;
    if (peek(1) == ',') {
      out_ += "{0";
      ++at_;
      copy(length - 1);
    } else {
      copy(length);
    }
    return {};
  }

  // A ] right after the opening is a member, and [ is no special character inside.
  Result<void> character_class() {
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') {
      out_ += R"(\])";
      ++at_;
    }
    in_class_ = true;
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        FEWBIT_TRY(escape());
      } else if (pattern_[at_] == '[') {
        out_ += R"(\[)";
        ++at_;
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
    if (c == 'v') return replace(R"(\x0b)");
    if (c == 'Z' && !in_class_) return replace(R"(\z)");
    const bool punctuation =
        static_cast<unsigned char>(c) < 0x80 && c != '\0' && !is_letter(c) && !is_digit(c);
    const bool read_alike = std::string_view("dDsSwWafnrt").find(c) != std::string_view::npos ||
                            c == 'b' || (!in_class_ && (c == 'B' || c == 'A'));
    const bool reference = !in_class_ && c >= '1' && c <= '9' && !is_digit(peek(2));
    if (c == '\0' || (!punctuation && !read_alike && !reference)) {
      return refuse(pattern_.substr(at_, 2));
    }
    copy(2);
    return {};
  }

  Result<void> replace(std::string_view with) {
    out_ += with;
    at_ += 2;
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

  std::string_view pattern_;
  const std::string& where_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> translate_python_regex(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace fewbit
