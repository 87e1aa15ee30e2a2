// SPDX-License-Identifier: Apache-2.0
#include "scheme/module_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/quote.hpp"
#include "scheme/config_word.hpp"
#include "scheme/fused_names.hpp"
#include "scheme/required_literal.hpp"

namespace fewbit {
namespace {

// Patterns that are tried one by one on every name.
constexpr std::size_t most_patterns = 4096;

// Of a rule that holds the names of its modules: all its ends are sorted.
constexpr std::size_t longest_holder = 4096;

constexpr std::string_view list_keys[] = {"ignore",         "exclude_modules",
                                          "exclude",        "modules_to_not_convert",
                                          "ignored_layers", "llm_int8_skip_modules"};

constexpr std::string_view glob_characters = "*?[";

bool has_any(std::string_view text, std::string_view characters) {
  return text.find_first_of(characters) != std::string_view::npos;
}

std::string_view without_trailing_dots(std::string_view name) {
  while (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

PatternKind kind_of(const Dialect& dialect, std::string_view& text) {
  if (dialect.re_prefix && text.starts_with("re:")) {
    text.remove_prefix(3);
    return PatternKind::regex;
  }
  if (dialect.wildcards && has_any(text, glob_characters)) return PatternKind::glob;
  if (dialect.metacharacters && has_any(text, "*^$|[](){}?+\\")) return PatternKind::regex;
  return dialect.literal;
}

// A regex or glob that begins with a name, or with any text before a wrapper's prefix, so that the
// name with other prefixes may match too.
bool begins_with_name(const ModulePattern& pattern) {
  std::string_view text = pattern.text();
  if (pattern.kind() == PatternKind::glob && text.starts_with('*')) {
    text.remove_prefix(1);
    return without_wrapper_prefix(text) != text;
  }
  if (text.starts_with('^')) text.remove_prefix(1);
  return !text.empty() && !has_any(text.substr(0, 1), ".*?[(\\");
}

bool ends_with_wrapper(std::string_view pattern) {
  return pattern.ends_with("linear") || pattern.ends_with("linear$");
}

// What every name that a glob matches begins with.
std::string_view fixed_head(const ModulePattern& pattern) {
  if (pattern.kind() != PatternKind::glob) return {};
  return std::string_view(pattern.text()).substr(0, pattern.text().find_first_of(glob_characters));
}

}  // namespace

Dialect dialect_of(Producer producer) {
  switch (producer) {
    case Producer::modelopt:
      return {.literal = PatternKind::substring, .wildcards = true, .by_fused_name = true};
    case Producer::compressed_tensors:
      return {.literal = PatternKind::exact, .re_prefix = true, .any_part = true};
    case Producer::quark:
      return {.literal = PatternKind::exact, .re_prefix = true, .wildcards = true};
    case Producer::awq:
      return {.literal = PatternKind::substring};
    case Producer::auto_round:
      return {.literal = PatternKind::components, .metacharacters = true};
    case Producer::mxfp4:
      return {.literal = PatternKind::regex};
    default:
      return {.literal = PatternKind::components};
  }
}

Producer list_producer(const Declaration& declaration) {
  const bool again = declaration.producer == Producer::fp8 && declaration.block != nullptr &&
                     !word_at(*declaration.block, "moe_quant_algo").empty();
  return again ? Producer::modelopt : declaration.producer;
}

std::vector<PatternEntry> ignore_entries(const Declaration& declaration) {
  std::vector<PatternEntry> entries;
  for (const std::string_view key : list_keys) {
    const Json* list = declaration.block->find(key);
    const Json::Array* items = list != nullptr ? list->as_array() : nullptr;
    if (items == nullptr) continue;
    for (const Json& item : *items) {
      const std::string* text = word_of(&item);
      if (text == nullptr) continue;
      entries.push_back({*text, declaration.where + "." + std::string(key)});
    }
  }
  return entries;
}

std::vector<PatternEntry> rule_entries(const Declaration& declaration) {
  std::string_view key;
  if (declaration.producer == Producer::gptq) key = "dynamic";
  if (declaration.producer == Producer::auto_round) key = "extra_config";
  if (declaration.producer == Producer::quark) key = "layer_quant_config";
  const Json* rules = key.empty() ? nullptr : declaration.block->find(key);
  const Json::Object* members = rules != nullptr ? rules->as_object() : nullptr;
  if (members == nullptr) return {};
  std::vector<PatternEntry> entries;
  for (const auto& [name, rule] : *members) {
    std::string_view text = name;
    // "-:" leaves a module alone, as a list of exceptions does.
    const bool excludes = declaration.producer == Producer::gptq && text.starts_with("-:");
    if (excludes || (declaration.producer == Producer::gptq && text.starts_with("+:"))) {
      text.remove_prefix(2);
    }
    const Json* bits = rule.find("bits");
    const bool plain = bits != nullptr && bits->as_int64().value_or(0) >= 16;
    if (text.empty()) continue;
    entries.push_back(
        {std::string(text), declaration.where + "." + std::string(key), !excludes && !plain});
  }
  return entries;
}

Dialect rule_dialect(Producer producer) {
  if (producer == Producer::gptq) return {.literal = PatternKind::regex, .from_start = true};
  Dialect dialect = dialect_of(producer);
  // The comparison is the other way round than that of its list.
  if (producer == Producer::quark) {
    dialect.literal = PatternKind::within;
    dialect.in_order = true;
  }
  if (producer == Producer::auto_round) {
    dialect.literal = PatternKind::exact;
    dialect.searches = true;
  }
  return dialect;
}

ModuleRules::ModuleRules(const Dialect& dialect, std::vector<PatternEntry> entries,
                         std::shared_ptr<MatchBudget> budget)
    : dialect_(dialect), entries_(std::move(entries)), budget_(std::move(budget)) {
  if (budget_ == nullptr) budget_ = std::make_shared<MatchBudget>();
  for (std::size_t i = 0; i < entries_.size(); ++i) add_entry(i);
  if (!patterns_.empty()) index_literals();
  std::sort(holders_.begin(), holders_.end(),
            [&](const auto& a, const auto& b) { return held_text(a) < held_text(b); });
}

std::string_view ModuleRules::held_text(const std::pair<std::size_t, std::size_t>& place) const {
  return std::string_view(entries_[place.first].text).substr(place.second);
}

void ModuleRules::add_holder(std::string_view text, std::size_t entry) {
  if (text.size() > longest_holder) {
    failures_.emplace(entry,
                      Error{ErrorCode::limit,
                            fmt::format("a name of {} characters, compared are names of at most {}",
                                        text.size(), longest_holder),
                            entries_[entry].source});
    return;
  }
  exact_[std::string(without_wrapper_prefix(text))].push_back(entry);
  constexpr std::size_t most_holders = 1U << 20U;
  for (std::size_t at = 0; at < text.size() && holders_.size() < most_holders;) {
    holders_.emplace_back(entry, at);
    const std::size_t dot = text.find('.', at);
    at = dot == std::string_view::npos ? text.size() : dot + 1;
  }
}

// Behind the name's own prefix, or behind any that stands at the start.
void ModuleRules::visit_holders(std::string_view name,
                                const std::function<void(std::size_t)>& visit) const {
  const std::string_view inner = without_wrapper_prefix(name);
  if (holders_.empty() || inner.empty()) return;
  const std::size_t prefix = name.size() - inner.size();
  auto at = std::lower_bound(
      holders_.begin(), holders_.end(), inner,
      [&](const auto& place, std::string_view key) { return held_text(place) < key; });
  for (; at != holders_.end() && held_text(*at).starts_with(inner); ++at) {
    const auto& [entry, offset] = *at;
    if (budget_->spent()) {
      starved_.insert(entry);
      return;
    }
    budget_->spend(1);
    const std::string_view text = entries_[entry].text;
    const bool own = offset >= prefix && text.substr(offset - prefix).starts_with(name);
    const bool other = text.size() - without_wrapper_prefix(text).size() == offset;
    if (own || other) visit(entry);
  }
}

// Substrings are also found without a wrapper's prefix.
void ModuleRules::index_literals() {
  std::vector<std::string> literals;
  literals.reserve(patterns_.size());
  for (const auto& [entry, pattern] : patterns_) {
    pattern_entries_.push_back(entry);
    std::string literal = required_literal(pattern.kind(), pattern.text());
    if (pattern.kind() == PatternKind::substring) literal = without_wrapper_prefix(literal);
    literals.push_back(std::move(literal));
    any_prefixed_ = any_prefixed_ || begins_with_name(pattern);
    any_suffixed_ = any_suffixed_ || ends_with_wrapper(pattern.text());
  }
  literals_.emplace(std::move(literals));
}

// Entries, in order, of the patterns that may match under any spelling.
std::vector<std::size_t> ModuleRules::candidates(Spellings& module) const {
  std::vector<std::size_t> out;
  if (!literals_) return out;
  literals_->candidates(module.name(), out);
  if (any_prefixed_) {
    for (const std::string& other : module.others()) literals_->candidates(other, out);
  }
  if (any_suffixed_) literals_->candidates(std::string(module.name()) + ".linear", out);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  for (std::size_t& number : out) number = pattern_entries_[number];
  return out;
}

void ModuleRules::add_entry(std::size_t entry) {
  std::string_view text = entries_[entry].text;
  const PatternKind kind = kind_of(dialect_, text);
  if (kind == PatternKind::exact) {
    for (const std::string_view name : {text, without_wrapper_suffix(text)}) {
      exact_[std::string(without_wrapper_prefix(name))].push_back(entry);
    }
  } else if (kind == PatternKind::within) {
    add_holder(text, entry);
  } else if (kind == PatternKind::components) {
    add_components(text, entry);
    add_components(without_wrapper_suffix(text), entry);
  } else if (patterns_.size() >= most_patterns) {
    failures_.emplace(entry,
                      Error{ErrorCode::limit, fmt::format("more than {} patterns", most_patterns),
                            entries_[entry].source});
  } else {
    const bool anywhere = dialect_.searches && kind == PatternKind::regex;
    const std::string whole = anywhere ? fmt::format(".*?(?:{})", text) : std::string(text);
    auto pattern = ModulePattern::compile(kind, whole, entries_[entry].source, budget_);
    if (pattern) {
      patterns_.emplace(entry, *std::move(pattern));
    } else if (budget_->spent()) {
      starved_.insert(entry);
    } else {
      failures_.emplace(entry, pattern.error());
    }
  }
}

void ModuleRules::add_components(std::string_view text, std::size_t entry) {
  text = without_trailing_dots(text);
  if (text.empty()) return;
  components_[std::string(text)].push_back(entry);
  first_components_.try_emplace(std::string(text.substr(0, text.find('.'))), true);
  const std::string_view inner = without_wrapper_prefix(text);
  if (inner != text) anchored_[std::string(inner)].push_back(entry);
}

void ModuleRules::visit_literals(std::string_view name,
                                 const std::function<void(std::size_t)>& visit) const {
  const auto look_up = [&](const Entries& table, std::string_view text) {
    if (table.empty()) return;
    const auto found = table.find(text);
    if (found == table.end()) return;
    for (const std::size_t entry : found->second) visit(entry);
  };
  const std::string_view inner = without_wrapper_prefix(name);
  look_up(exact_, inner);
  visit_holders(name, visit);
  // Calls look_up for the first component of `text`, the first two …
  const auto each_prefix = [&](const Entries& table, std::string_view text) {
    for (std::size_t end = text.find('.');; end = text.find('.', end + 1)) {
      look_up(table, text.substr(0, end));
      if (end == std::string_view::npos) return;
    }
  };
  if (!anchored_.empty()) each_prefix(anchored_, inner);
  if (components_.empty()) return;
  for (std::string_view rest = name;;) {
    const std::size_t dot = rest.find('.');
    if (first_components_.contains(rest.substr(0, dot))) each_prefix(components_, rest);
    if (dot == std::string_view::npos) return;
    rest.remove_prefix(dot + 1);
  }
}

std::span<const std::string> ModuleRules::Spellings::others() {
  if (others_.empty()) others_ = with_wrapper_prefixes(name_);
  return others_;
}

bool ModuleRules::hits(std::size_t entry, std::string_view name) const {
  if (gave_up_ || limits_.contains(entry)) return false;
  ++tries_;
  const Result<bool> result = patterns_.at(entry).matches(name, *budget_);
  if (!result) limits_.emplace(entry, result.error());
  if (budget_->spent()) give_up(name);
  return result && *result;
}

// With the budget spent, no pattern is tried on the names that are left, and each says so.
void ModuleRules::give_up(std::string_view name) const {
  if (std::exchange(gave_up_, true)) return;
  for (const auto& [entry, pattern] : patterns_) {
    if (limits_.contains(entry)) continue;
    const Result<bool> result = pattern.matches(name, *budget_);
    if (result) continue;
    if (budget_->is_much(pattern.steps())) {
      limits_.emplace(entry, result.error());
    } else {
      starved_.insert(entry);
    }
  }
}

// Whether the name matches with another wrapper's prefix.
bool ModuleRules::prefixed_hits(std::size_t entry, Spellings& module) const {
  const ModulePattern& pattern = patterns_.at(entry);
  if (pattern.kind() == PatternKind::substring) {
    const std::string_view inner = without_wrapper_prefix(pattern.text());
    return !inner.empty() && inner.size() < pattern.text().size() &&
           without_wrapper_prefix(module.name()).starts_with(inner);
  }
  if (!begins_with_name(pattern)) return false;
  const std::string_view head = fixed_head(pattern);
  const auto others = module.others();
  return std::any_of(others.begin(), others.end(), [&](const std::string& other) {
    const bool bare = without_wrapper_prefix(other).size() == other.size();
    if (bare && dialect_.from_start) return false;
    return other.starts_with(head) && other != module.name() && hits(entry, other);
  });
}

bool ModuleRules::pattern_hits(std::size_t entry, Spellings& module) const {
  if (hits(entry, module.name()) || prefixed_hits(entry, module)) return true;
  const std::string_view text = patterns_.at(entry).text();
  return ends_with_wrapper(text) && hits(entry, std::string(module.name()) + ".linear");
}

std::optional<std::size_t> ModuleRules::find(std::string_view name,
                                             const EntryTest& passes_over) const {
  std::optional<std::size_t> first;
  visit_literals(name, [&](std::size_t entry) { first = std::min(first.value_or(entry), entry); });
  if ((first && !dialect_.in_order) || gave_up_) return first;
  Spellings module(name);
  for (const std::size_t entry : candidates(module)) {
    if (first && *first < entry) break;
    if (!pattern_hits(entry, module)) continue;
    if (passes_over == nullptr || !passes_over(entry)) return entry;
  }
  return first;
}

}  // namespace fewbit
