// SPDX-License-Identifier: Apache-2.0
// What is wrong with the entries of a list: they match nothing, or more than they seem to say.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "core/quote.hpp"
#include "scheme/fused_names.hpp"
#include "scheme/generic_patterns.hpp"
#include "scheme/module_rules.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/near_names.hpp"

namespace fewbit {
namespace {

// Tries of patterns on names for one list; a list that needs more is not reported on in full.
constexpr std::uint64_t most_tries = 20'000'000;

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

// Names by a word and the number behind it.
class NumberedNames {
 public:
  using ByNumber = std::map<std::string, std::vector<std::string_view>, std::less<>>;

  explicit NumberedNames(std::span<const std::string_view> modules) {
    for (const std::string_view module : modules) {
      std::set<std::string_view> words;  // the first of each counts
      const std::vector<std::string_view> parts = split_dots(module);
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto number = name_number(parts[i + 1]);
        if (!number || !words.insert(parts[i]).second) continue;
        words_[std::string(parts[i])][std::to_string(*number)].push_back(module);
      }
    }
  }

  const ByNumber& behind(const std::string& word) const {
    static const ByNumber none;
    const auto found = words_.find(word);
    return found == words_.end() ? none : found->second;
  }

 private:
  std::map<std::string, ByNumber> words_;
};

std::vector<std::size_t> ModuleRules::unmatched(std::span<const std::string_view> modules) const {
  std::vector<bool> hit(entries_.size(), false);
  for (const auto& [entry, pattern] : patterns_) {
    const auto found = std::lower_bound(modules.begin(), modules.end(), pattern.text());
    const bool names_one = pattern.kind() == PatternKind::substring && found != modules.end() &&
                           found->starts_with(pattern.text());
    hit[entry] = names_one;
  }
  std::uint64_t tries = 0;
  const auto mark = [&](std::string_view name) {
    visit_literals(name, [&](std::size_t entry) { hit[entry] = true; });
    if (gave_up_) return;
    Spellings module(name);
    for (const std::size_t entry : candidates(module)) {
      if (hit[entry]) continue;
      ++tries;
      hit[entry] = pattern_hits(entry, module);
    }
  };
  for (const std::string_view module : modules) {
    if (tries > most_tries) break;
    mark(module);
    const std::string_view last = module.substr(module.rfind('.') + 1);
    for (const std::string& part : fused_parts(last)) mark(with_last_component(module, part));
    for (const std::string& name : fused_names_of(last)) mark(with_last_component(module, name));
  }
  // Those that backtrack without bound are to be found, although no name has their text.
  constexpr std::uint64_t most_probes = 1'000'000;
  const std::uint64_t enough = tries_ + most_probes;
  for (const auto& [entry, pattern] : patterns_) {
    if (gave_up_ || hit[entry] || pattern.kind() != PatternKind::regex) continue;
    for (auto at = modules.begin(); at != modules.end() && tries_ < enough; ++at) hits(entry, *at);
  }
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const bool untested = tries > most_tries && patterns_.contains(i);
    const bool refused = failures_.contains(i) || limits_.contains(i) || starved_.contains(i);
    if (!hit[i] && !untested && !refused) out.push_back(i);
  }
  return out;
}

std::optional<Finding> ModuleRules::too_wide(std::size_t entry, const NumberedNames& names) const {
  const ModulePattern& pattern = patterns_.at(entry);
  for (const OpenNumber& number : open_numbers(pattern.kind(), entries_[entry].text)) {
    std::set<int> more;
    bool itself = false;
    const NumberedNames::ByNumber& numbers = names.behind(number.word);
    for (auto at = numbers.lower_bound(number.digits);
         at != numbers.end() && at->first.starts_with(number.digits); ++at) {
      const bool any =
          std::any_of(at->second.begin(), at->second.end(), [&](std::string_view module) {
            Spellings spellings(module);
            return pattern_hits(entry, spellings);
          });
      if (!any) continue;
      itself = itself || at->first == number.digits;
      if (at->first != number.digits) more.insert(name_number(at->first).value_or(0));
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

bool says_contradicted(std::span<const Finding> findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.level != Level::info && (finding.rule == "config-expects-quantized" ||
                                            finding.rule == "config-excludes-quantized");
  });
}

// Which of the entries name a module, read in one pass over all names.
std::vector<bool> ModuleRules::named(const Dialect& dialect, std::vector<PatternEntry> entries,
                                     std::span<const std::string_view> modules) const {
  std::vector<bool> out(entries.size(), !entries.empty());
  if (entries.empty()) return out;
  const ModuleRules rules(dialect, std::move(entries), budget_);
  for (const std::size_t entry : rules.unmatched(modules)) out[entry] = false;
  for (const std::map<std::size_t, Error>* errors :
       {&rules.failures_, &std::as_const(rules.limits_)}) {
    for (const auto& [entry, error] : *errors) out[entry] = false;
  }
  for (const std::size_t entry : rules.starved_) out[entry] = false;
  return out;
}

// What modules would be named by that these entries miss by a slip, or by being read as another
// producer reads them; empty where nothing is near.
std::vector<std::string> ModuleRules::meant_entries(
    std::span<const std::size_t> entries, std::span<const std::string_view> modules) const {
  const NearNames near(modules);
  std::vector<PatternEntry> corrected;
  std::vector<std::size_t> owners;
  std::vector<PatternEntry> as_they_are;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const PatternEntry& entry = entries_[entries[i]];
    as_they_are.push_back(entry);
    for (std::string& other : near.corrections(entry.text)) {
      corrected.push_back({std::move(other), entry.source});
      owners.push_back(i);
    }
  }
  Dialect wider{.re_prefix = true, .wildcards = true, .searches = true};
  if (dialect_.literal == PatternKind::regex)
    wider = {.literal = PatternKind::regex, .searches = true};
  std::vector<std::string> meant(entries.size());
  const std::vector<bool> by_slip = named(dialect_, corrected, modules);
  for (std::size_t i = 0; i < corrected.size(); ++i) {
    std::string& text = meant[owners[i]];
    if (by_slip[i] && text.empty()) text = "as " + quote(corrected[i].text) + " would";
  }
  const std::vector<bool> otherwise = named(wider, std::move(as_they_are), modules);
  for (std::size_t i = 0; i < meant.size(); ++i) {
    if (otherwise[i] && meant[i].empty())
      meant[i] = "which this one would if another producer read it";
  }
  return meant;
}

void ModuleRules::add_unmatched(Level level, std::span<const std::size_t> list,
                                std::string expected, std::vector<Finding>& findings) const {
  if (list.empty()) return;
  std::string names;
  for (const std::size_t entry : list) {
    if (names.size() < 120) names += (names.empty() ? "" : ", ") + quote(entries_[entry].text);
  }
  findings.push_back({level, "pattern-unmatched", entries_[list.front()].source,
                      fmt::format("{} of {} entries match no module: {}{}", list.size(),
                                  entries_.size(), names, names.size() < 120 ? "" : ", …"),
                      std::move(expected)});
}

// Lists are written for models of every kind, and for layers that a release leaves out. Only an
// entry that misses a module by a slip is a mistake, or any where modules are not as the config
// says.
void ModuleRules::report_unmatched(std::span<const std::string_view> modules,
                                   const ListContext& context,
                                   std::vector<Finding>& findings) const {
  constexpr std::size_t most_compared = 128;
  std::vector<std::size_t> generic;
  std::vector<std::size_t> behind;
  std::vector<std::size_t> wrong;
  std::vector<std::size_t> unknown;
  for (const std::size_t entry : unmatched(modules)) {
    const auto& [text, source, target] = entries_[entry];
    const bool known = patterns_.contains(entry) ? is_generic_pattern(text) : is_generic_name(text);
    if (known && !target) {
      generic.push_back(entry);
    } else if (context.layers && is_behind_last_layer(text, *context.layers)) {
      behind.push_back(entry);
    } else {
      unknown.push_back(entry);
    }
  }
  std::vector<std::size_t> absent;
  std::string meant;
  const std::span<const std::size_t> first(unknown.data(), std::min(unknown.size(), most_compared));
  const std::vector<std::string> slips =
      first.empty() ? std::vector<std::string>() : meant_entries(first, modules);
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    const std::string slip = i < slips.size() ? slips[i] : std::string();
    if (meant.empty()) meant = slip;
    (context.contradicted || !slip.empty() ? wrong : absent).push_back(unknown[i]);
  }
  add_unmatched(Level::warning, wrong,
                "entries that name modules of the file" + (meant.empty() ? "" : ", " + meant),
                findings);
  add_unmatched(Level::info, absent, "nothing: modules are plain or quantized as the config says",
                findings);
  add_unmatched(Level::info, behind,
                fmt::format("nothing: the model has {} layers", context.layers.value_or(0)),
                findings);
  add_unmatched(Level::info, generic, "nothing: exporters list these for models of every kind",
                findings);
}

std::vector<Finding> ModuleRules::report(std::span<const std::string_view> modules,
                                         const ListContext& context) const {
  std::vector<Finding> findings;
  report_unmatched(modules, context, findings);
  constexpr std::size_t most_wide = 8;
  const std::uint64_t enough = tries_ + most_tries;
  std::optional<NumberedNames> names;
  for (const auto& [entry, pattern] : patterns_) {
    if (findings.size() > most_wide || tries_ > enough) break;
    if (open_numbers(pattern.kind(), entries_[entry].text).empty()) continue;
    if (!names) names.emplace(modules);
    if (auto wide = too_wide(entry, *names)) findings.push_back(*std::move(wide));
  }
  report_refused(findings);
  return findings;
}

// What can't be used first, then what took the most steps, then what these left none for.
void ModuleRules::report_refused(std::vector<Finding>& findings) const {
  std::vector<std::pair<std::size_t, const Error*>> refused;
  for (const auto& [entry, error] : failures_) refused.emplace_back(entry, &error);
  const auto steps_of = [&](std::size_t entry) {
    const auto pattern = patterns_.find(entry);
    return pattern != patterns_.end() ? pattern->second.steps() : 0;
  };
  const auto limits = static_cast<std::ptrdiff_t>(refused.size());
  for (const auto& [entry, error] : limits_) refused.emplace_back(entry, &error);
  std::stable_sort(refused.begin() + limits, refused.end(), [&](const auto& a, const auto& b) {
    return steps_of(a.first) > steps_of(b.first);
  });
  constexpr std::size_t most_said = 16;
  const std::size_t said = std::min(refused.size(), most_said);
  const auto rule_of = [](const Error& error) {
    return error.code == ErrorCode::limit ? "pattern-limit" : "pattern-invalid";
  };
  for (const auto& [entry, error] : std::span(refused).first(said)) {
    findings.push_back({Level::warning, rule_of(*error), entries_[entry].source, error->what,
                        "a pattern of Python's re module that needs few steps"});
  }
  if (refused.size() > said) {
    findings.push_back({Level::warning, rule_of(*refused[said].second), entries_.front().source,
                        fmt::format("{} more patterns that are not used", refused.size() - said),
                        fmt::format("the {} above are as these", said)});
  }
  report_starved(findings);
}

// Which of them are not to blame: another list of the config may have spent the steps.
void ModuleRules::report_starved(std::vector<Finding>& findings) const {
  if (starved_.empty()) return;
  const PatternEntry& first = entries_[*starved_.begin()];
  findings.push_back(
      {Level::warning, "pattern-limit", first.source,
       fmt::format("{} of {} patterns are not tried on every name, {} for one: {}", starved_.size(),
                   entries_.size(), quote(first.text), budget_->spent_text()),
       budget_->remedy()});
}

}  // namespace fewbit
