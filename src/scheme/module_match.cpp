// SPDX-License-Identifier: Apache-2.0
#include "scheme/module_match.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/quote.hpp"
#include "scheme/module_match_regex.hpp"

namespace fewbit {
namespace {

// A set [..] at the start of `pattern`; empty when it isn't closed.
struct CharacterSet {
  std::string_view body;
  std::size_t length = 0;  // with its brackets
  bool negated = false;

  bool has(char c) const {
    bool found = false;
    for (std::size_t i = 0; i < body.size(); ++i) {
      if (i + 2 < body.size() && body[i + 1] == '-') {
        found = found || (body[i] <= c && c <= body[i + 2]);
        i += 2;
      } else {
        found = found || body[i] == c;
      }
    }
    return found != negated;
  }
};

std::optional<CharacterSet> read_set(std::string_view pattern) {
  CharacterSet set;
  std::size_t start = 1;
  set.negated = pattern.size() > 1 && pattern[1] == '!';
  if (set.negated) start = 2;
  // A ] right after the opening is a member.
  const std::size_t end = pattern.find(']', start + 1);
  if (end == std::string_view::npos) return std::nullopt;
  set.body = pattern.substr(start, end - start);
  set.length = end + 1;
  return set;
}

// Matches one character against the pattern's next element; 0 when it does not match, else the
// element's length.
std::size_t match_one(char c, std::string_view pattern) {
  if (pattern.front() == '?') return 1;
  if (pattern.front() == '[') {
    if (const auto set = read_set(pattern)) return set->has(c) ? set->length : 0;
  }
  return pattern.front() == c ? 1 : 0;
}

std::string_view without_trailing_dots(std::string_view name) {
  while (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

}  // namespace

bool component_match(std::string_view module, std::string_view entry) {
  module = without_trailing_dots(module);
  entry = without_trailing_dots(entry);
  if (entry.empty()) return module.empty();
  for (std::size_t at = module.find(entry); at != std::string_view::npos;
       at = module.find(entry, at + 1)) {
    const std::size_t end = at + entry.size();
    if ((at == 0 || module[at - 1] == '.') && (end == module.size() || module[end] == '.')) {
      return true;
    }
  }
  return false;
}

bool glob_match(std::string_view text, std::string_view pattern) {
  std::uint64_t compared = 0;
  return glob_match(text, pattern, compared);
}

bool glob_match(std::string_view text, std::string_view pattern, std::uint64_t& compared) {
  std::size_t t = 0;
  std::size_t p = 0;
  std::size_t star = std::string_view::npos;  // pattern position after the last *
  std::size_t retry = 0;                      // text position that * gives up next
  while (t < text.size()) {
    ++compared;
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      retry = t;
      continue;
    }
    const std::size_t step = p < pattern.size() ? match_one(text[t], pattern.substr(p)) : 0;
    if (step > 0) {
      ++t;
      p += step;
    } else if (star != std::string_view::npos) {
      p = star;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

const char* pattern_kind_name(PatternKind kind) {
  switch (kind) {
    case PatternKind::exact:
      return "exact name";
    case PatternKind::components:
      return "dotted components";
    case PatternKind::substring:
      return "substring";
    case PatternKind::within:
      return "text that holds the name";
    case PatternKind::glob:
      return "wildcards";
    case PatternKind::regex:
      return "regular expression";
  }
  return "?";
}

Result<ModulePattern> ModulePattern::compile(PatternKind kind, std::string_view text,
                                             const std::string& where,
                                             std::shared_ptr<MatchBudget> budget) {
  ModulePattern pattern;
  pattern.kind_ = kind;
  pattern.text_ = std::string(text);
  pattern.where_ = where;
  if (kind == PatternKind::regex) {
    if (budget == nullptr) budget = std::make_shared<MatchBudget>();
    const std::uint64_t before = budget->steps();
    FEWBIT_TRY(PythonRegex regex, PythonRegex::compile(text, where, budget));
    pattern.charge(*budget, budget->steps() - before);
    pattern.regex_ = std::make_shared<const PythonRegex>(std::move(regex));
  }
  return pattern;
}

Result<bool> ModulePattern::matches(std::string_view module, MatchBudget& budget) const {
  if (budget.spent()) {
    const std::string what =
        budget.is_much(steps_)
            ? fmt::format(
                  "pattern {} took {} of the {} match steps that all patterns of a config have "
                  "together, and these are spent before {}",
                  quote(text_), steps_, budget.most(), quote(module))
            : fmt::format("pattern {} is not tried on {}: {}", quote(text_), quote(module),
                          budget.spent_text());
    return Error{ErrorCode::limit, what, where_};
  }
  constexpr std::uint64_t steps_a_try = 4;
  std::uint64_t steps = steps_a_try;
  Result<bool> found = match(module, steps);
  budget.spend(steps);
  charge(budget, steps);
  return found;
}

void ModulePattern::charge(MatchBudget& budget, std::uint64_t steps) const {
  steps_ += steps;
  unnoted_ += steps;
  if (!budget.is_worth_a_note(unnoted_)) return;
  budget.note(text_, unnoted_);
  unnoted_ = 0;
}

Result<bool> ModulePattern::match(std::string_view module, std::uint64_t& steps) const {
  switch (kind_) {
    case PatternKind::exact:
      return module == text_;
    case PatternKind::components:
      return component_match(module, text_);
    case PatternKind::substring:
      steps += module.size() / 16;
      return module.find(text_) != std::string_view::npos;
    case PatternKind::within:
      steps += text_.size() / 16;
      return ("." + text_).find("." + std::string(module)) != std::string::npos;
    case PatternKind::glob: {
      std::uint64_t compared = 0;
      const bool found = glob_match(module, text_, compared);
      steps += compared;
      return found;
    }
    case PatternKind::regex:
      return regex_->match(module, steps);
  }
  return false;
}

}  // namespace fewbit
