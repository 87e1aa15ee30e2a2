// SPDX-License-Identifier: Apache-2.0
#include "scheme/required_literal.hpp"

#include <algorithm>
#include <cctype>

namespace fewbit {
namespace {

void keep_longer(std::string& best, std::string& run) {
  if (run.size() > best.size()) best = run;
  run.clear();
}

std::string of_glob(std::string_view text) {
  std::string best;
  std::string run;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') {
      // What an unclosed one means is not this function's to know.
      const bool negated = text.substr(at + 1).starts_with('!');
      const std::size_t close = text.find(']', at + (negated ? 3 : 2));
      if (close == std::string_view::npos) break;
      at = close;
    }
    if (text[at] == '*' || text[at] == '?' || text[at] == ']') {
      keep_longer(best, run);
    } else {
      run += text[at];
    }
  }
  keep_longer(best, run);
  return best;
}

// Reads a regular expression as far as it is plain; anything else ends a run, or the search.
class RegexLiteral {
 public:
  explicit RegexLiteral(std::string_view text) : text_(text) {}

  std::string find() {
    std::string found = alternatives(0);
    return usable_ && at_ == text_.size() ? found : std::string();
  }

 private:
  static constexpr int deepest = 32;

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  std::string give_up() {
    usable_ = false;
    at_ = text_.size();
    return {};
  }

  // Up to the end or the bracket that closes the group.
  std::string alternatives(int depth) {
    if (depth > deepest) return give_up();
    std::string best = sequence(depth);
    bool several = false;
    while (peek() == '|') {
      several = true;
      ++at_;
      sequence(depth);
    }
    return several ? std::string() : best;
  }

  std::string sequence(int depth) {
    std::string best;
    std::string run;
    while (usable_ && at_ < text_.size() && peek() != '|' && peek() != ')') {
      const char c = peek();
      if (c == '(') {
        keep_longer(best, run);
        std::string inner = group(depth);
        if (!may_be_absent()) keep_longer(best, inner);
      } else if (c == '[') {
        keep_longer(best, run);
        skip_class();
      } else if (c == '\\') {
        escape(best, run);
      } else if (std::string_view(".^$").find(c) != std::string_view::npos) {
        keep_longer(best, run);
        ++at_;
      } else if (std::string_view("*+?{").find(c) != std::string_view::npos) {
        if (may_be_absent() && !run.empty()) run.pop_back();
        keep_longer(best, run);
        skip_repeat();
      } else if (static_cast<unsigned char>(c) >= 0x80) {
        return give_up();  // a repeat would be of more than one byte
      } else {
        run += c;
        ++at_;
      }
    }
    keep_longer(best, run);
    return best;
  }

  bool may_be_absent() const { return peek() == '*' || peek() == '?' || peek() == '{'; }

  void skip_repeat() {
    if (peek() == '{') {
      const std::size_t close = text_.find('}', at_);
      if (close == std::string_view::npos) {
        give_up();
        return;
      }
      at_ = close;
    }
    ++at_;
  }

  // A group's text is required where it is a plain one; others are skipped.
  std::string group(int depth) {
    ++at_;
    bool plain = true;
    if (peek() == '?') {
      ++at_;
      plain = peek() == ':';
      const bool look = peek() == '=' || peek() == '!';
      if (!plain && !look) return give_up();  // flags, names, comments, looking behind
      ++at_;
    }
    std::string inner = alternatives(depth + 1);
    if (peek() != ')') return give_up();
    ++at_;
    return plain ? inner : std::string();
  }

  void skip_class() {
    std::size_t at = at_ + 1;
    if (at < text_.size() && text_[at] == '^') ++at;
    if (at < text_.size() && text_[at] == ']') ++at;
    while (at < text_.size() && text_[at] != ']') at += text_[at] == '\\' ? 2 : 1;
    if (at >= text_.size()) {
      give_up();
      return;
    }
    at_ = at + 1;
  }

  void escape(std::string& best, std::string& run) {
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) {
      run += c;
    } else if (std::string_view("dDsSwWbBAZ").find(c) != std::string_view::npos && c != '\0') {
      keep_longer(best, run);
    } else {
      give_up();
      return;
    }
    at_ += 2;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool usable_ = true;
};

}  // namespace

std::string required_literal(PatternKind kind, std::string_view text) {
  if (kind == PatternKind::regex) return RegexLiteral(text).find();
  if (kind == PatternKind::within) return "";
  return kind == PatternKind::glob ? of_glob(text) : std::string(text);
}

}  // namespace fewbit
