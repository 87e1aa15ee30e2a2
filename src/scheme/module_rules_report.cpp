// SPDX-License-Identifier: Apache-2.0
// What is wrong with the entries of a list: they match nothing, or more than they seem to say.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "core/quote.hpp"
#include "scheme/fused_names.hpp"
#include "scheme/generic_patterns.hpp"
#include "scheme/module_rules.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

// Tries of patterns on names for one list; a list that needs more is not reported on in full.
constexpr std::int64_t most_tries = 20'000'000;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// A number that stands in a pattern as it is, behind which a longer one would match too: the
// "1" of "model.layers.1*".
struct OpenNumber {
  std::string word;  // "layers"
  std::string digits;
};

// Whether what follows a number leaves it open.
bool leaves_open(PatternKind kind, std::string_view rest) {
  if (kind == PatternKind::substring) return rest.empty();
  if (kind == PatternKind::glob) return rest.starts_with('*') || rest.starts_with('?');
  // In a regex, a dot stands for any character, and the end is open.
  return rest.empty() || rest.starts_with('.') || rest.starts_with('*');
}

// Of "layers.1", "layers\.1".
std::vector<OpenNumber> open_numbers(PatternKind kind, std::string_view text) {
  std::vector<OpenNumber> out;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (!is_digit(text[at]) || text[at - 1] != '.') continue;
    std::size_t word_end = at - 1;
    if (word_end > 0 && text[word_end - 1] == '\\') --word_end;
    std::size_t word = word_end;
    while (word > 0 && is_word(text[word - 1])) --word;
    std::size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (word < word_end && leaves_open(kind, text.substr(end))) {
      out.push_back({std::string(text.substr(word, word_end - word)),
                     std::string(text.substr(at, end - at))});
    }
    at = end;
  }
  return out;
}

// The number behind `word` in a name.
std::optional<int> number_behind(std::string_view name, std::string_view word) {
  const std::vector<std::string_view> parts = split_dots(name);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i] == word) return name_number(parts[i + 1]);
  }
  return std::nullopt;
}

// "10 to 19, 100"
std::string ranges_text(const std::set<int>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end() && text.size() < 80;) {
    const int first = *at;
    int last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    text += text.empty() ? "" : ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last);
  }
  return text;
}

}  // namespace

std::vector<std::size_t> ModuleRules::unmatched(std::span<const std::string_view> modules) const {
  std::vector<bool> hit(entries_.size(), false);
  std::vector<std::size_t> open;  // patterns that have not matched yet
  for (const auto& [entry, pattern] : patterns_) {
    const auto found = std::lower_bound(modules.begin(), modules.end(), pattern.text());
    const bool names_one = pattern.kind() == PatternKind::substring && found != modules.end() &&
                           found->starts_with(pattern.text());
    if (!names_one) open.push_back(entry);
    hit[entry] = names_one;
  }
  std::int64_t tries = 0;
  const auto mark = [&](std::string_view name) {
    visit_literals(name, [&](std::size_t entry) { hit[entry] = true; });
    tries += static_cast<std::int64_t>(open.size());
    Spellings module(name);
    std::erase_if(open,
                  [&](std::size_t entry) { return hit[entry] = pattern_hits(entry, module); });
  };
  for (const std::string_view module : modules) {
    if (tries > most_tries) break;
    mark(module);
    const std::string_view last = module.substr(module.rfind('.') + 1);
    for (const std::string& part : fused_parts(last)) mark(with_last_component(module, part));
    for (const std::string& name : fused_names_of(last)) mark(with_last_component(module, name));
  }
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const bool untested = tries > most_tries && patterns_.contains(i);
    if (!hit[i] && !untested && !failures_.contains(i) && !limits_.contains(i)) out.push_back(i);
  }
  return out;
}

std::optional<Finding> ModuleRules::too_wide(std::size_t entry,
                                             std::span<const std::string_view> modules) const {
  const ModulePattern& pattern = patterns_.at(entry);
  for (const OpenNumber& number : open_numbers(pattern.kind(), entries_[entry].text)) {
    std::set<int> more;
    bool itself = false;
    for (const std::string_view module : modules) {
      const auto found = number_behind(module, number.word);
      if (!found) continue;
      const std::string digits = std::to_string(*found);
      Spellings spellings(module);
      if (!digits.starts_with(number.digits) || !pattern_hits(entry, spellings)) continue;
      itself = itself || digits == number.digits;
      if (digits != number.digits) more.insert(*found);
    }
    if (more.empty()) continue;
    return Finding{Level::warning, "pattern-wide", entries_[entry].source,
                   fmt::format("{} ({}) matches {} {}{}", quote(entries_[entry].text),
                               pattern_kind_name(pattern.kind()), number.word,
                               itself ? number.digits + " and " : std::string(), ranges_text(more)),
                   fmt::format("{} {} alone, as the number reads", number.word, number.digits)};
  }
  return std::nullopt;
}

// Entries that every export has may match nothing; others are mistakes.
void ModuleRules::report_unmatched(std::span<const std::string_view> modules,
                                   std::vector<Finding>& findings) const {
  std::vector<std::size_t> generic;
  std::vector<std::size_t> wrong;
  for (const std::size_t entry : unmatched(modules)) {
    const auto& [text, source, target] = entries_[entry];
    const bool known = patterns_.contains(entry) ? is_generic_pattern(text) : is_generic_name(text);
    (known && !target ? generic : wrong).push_back(entry);
  }
  const auto add = [&](Level level, const std::vector<std::size_t>& list, const char* expected) {
    if (list.empty()) return;
    std::string names;
    for (const std::size_t entry : list) {
      if (names.size() < 120) names += (names.empty() ? "" : ", ") + quote(entries_[entry].text);
    }
    findings.push_back({level, "pattern-unmatched", entries_[list.front()].source,
                        fmt::format("{} of {} entries match no module: {}{}", list.size(),
                                    entries_.size(), names, names.size() < 120 ? "" : ", …"),
                        expected});
  };
  add(Level::warning, wrong, "entries that name modules of the file");
  add(Level::info, generic, "nothing: exporters list these for models of every kind");
}

std::vector<Finding> ModuleRules::report(std::span<const std::string_view> modules) const {
  std::vector<Finding> findings;
  report_unmatched(modules, findings);
  constexpr std::size_t most_wide = 8;
  for (const auto& [entry, pattern] : patterns_) {
    if (findings.size() > most_wide) break;
    if (auto wide = too_wide(entry, modules)) findings.push_back(*std::move(wide));
  }
  for (const std::map<std::size_t, Error>* errors : {&failures_, &std::as_const(limits_)}) {
    for (const auto& [entry, error] : *errors) {
      const bool limit = error.code == ErrorCode::limit;
      findings.push_back({Level::warning, limit ? "pattern-limit" : "pattern-invalid",
                          entries_[entry].source, error.what,
                          "a pattern of Python's re module that needs few steps"});
      if (findings.size() > 2 * most_wide) return findings;
    }
  }
  return findings;
}

}  // namespace fewbit
