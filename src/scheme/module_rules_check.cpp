// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "core/quote.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/fused_names.hpp"
#include "scheme/module_rules.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/quark_config.hpp"
#include "scheme/reader.hpp"
#include "scheme/taken_matrices.hpp"

namespace fewbit {
namespace {

// The lists of one block by the key they stand under.
std::map<std::string, std::set<std::string>> by_source(std::span<const PatternEntry> entries) {
  std::map<std::string, std::set<std::string>> lists;
  for (const PatternEntry& entry : entries) lists[entry.source].insert(entry.text);
  return lists;
}

// One producer's loader reads one of the keys and never sees the other.
void check_lists_agree(Inventory& inventory, std::span<const PatternEntry> entries) {
  const auto lists = by_source(entries);
  if (lists.size() < 2) return;
  const auto& [first_source, first] = *lists.begin();
  for (auto other = std::next(lists.begin()); other != lists.end(); ++other) {
    std::set<std::string> difference;
    std::set_symmetric_difference(first.begin(), first.end(), other->second.begin(),
                                  other->second.end(), std::inserter(difference, difference.end()));
    if (difference.empty()) continue;
    inventory.findings.push_back(
        {Level::warning, "config-lists-differ", other->first,
         fmt::format("{} entries that only one of the two lists has, such as {}", difference.size(),
                     quote(*difference.begin())),
         fmt::format("the same list as {}", first_source)});
  }
}

// What lists may call experts that one tensor holds.
std::vector<std::string> expert_names(const Inventory& inventory) {
  std::vector<std::string> names;
  for (const Draft& draft : inventory.drafts) {
    std::vector<std::string> of_module = names_of_experts(draft.module);
    std::move(of_module.begin(), of_module.end(), std::back_inserter(names));
  }
  return names;
}

// Sorted names of all modules, and those of `more`. An output head that is tied to the embedding is
// listed all the same.
std::vector<std::string_view> module_names(const Inventory& inventory,
                                           std::span<const std::string> more) {
  std::vector<std::string_view> names;
  names.reserve(inventory.drafts.size() + 1);
  bool head = false;
  for (const Draft& draft : inventory.drafts) {
    names.push_back(draft.module.name);
    head = head || draft.module.role == Role::head;
  }
  constexpr std::string_view tied = "lm_head";
  if (!head) names.insert(std::lower_bound(names.begin(), names.end(), tied), tied);
  names.insert(names.end(), more.begin(), more.end());
  std::sort(names.begin(), names.end());
  return names;
}

void check_fused(Inventory& inventory, const ModuleRules& rules) {
  FindingGroups groups;
  for (const Draft& draft : inventory.drafts) {
    const std::string_view name = draft.module.name;
    const bool experts = draft.module.expert == all_experts;
    if (!experts && fused_parts(last_component(name)).empty()) continue;
    const ModuleRules::Verdict verdict = rules.judge(draft.module);
    if (verdict.kind != ModuleRules::Verdict::Kind::partly) continue;
    groups.add(draft.module.role, {Level::warning, "fused-partly-excluded", draft.module.name,
                                   fmt::format("{} listed in {}, {} not", verdict.listed_parts,
                                               verdict.entry->source, verdict.other_parts),
                                   "all parts of a matrix that is stored as one, or none"});
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

bool says_plain(const QuarkConfig& config, const Module& module) {
  const auto said = config.weight_of(module);
  return !said || said->plain;
}

// A plain matrix that a quantizer takes unless it is told not to. Routers are left by
// the loaders of these, output heads by those of FP8 and bitsandbytes.
std::optional<Level> plain_level(const TakenMatrices& taken, const Draft& draft,
                                 const QuarkConfig* quark) {
  const Module& module = draft.module;
  if (module.role == Role::router) return std::nullopt;
  if (module.role == Role::head && quark == nullptr) return std::nullopt;
  if (quark != nullptr && says_plain(*quark, module)) return std::nullopt;
  return taken.level(draft, quark != nullptr && quark->names(module), false);
}

// bitsandbytes replaces linear layers and leaves parameters that hold all experts.
bool is_replaced(Producer producer, const Module& module) {
  return producer != Producer::bitsandbytes || module.expert != all_experts;
}

// Of producers whose readers do not compare config and tensors themselves.
void check_contradictions(Inventory& inventory, Producer producer, const ModuleRules& rules) {
  const bool compares = producer == Producer::fp8 || producer == Producer::quark ||
                        producer == Producer::bitsandbytes;
  if (!compares && producer != Producer::mxfp4) return;
  const std::string list =
      rules.entries().empty() ? "no list of the config" : rules.entries()[0].source;
  const std::string verb = rules.entries().empty() ? "leaves it out" : "does not list it";
  FindingGroups groups;
  const auto quark = read_quark_config(inventory.declared);
  const TakenMatrices taken(inventory);
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    const ModuleRules::Verdict verdict = rules.judge(module);
    const bool listed = verdict.kind == ModuleRules::Verdict::Kind::whole;
    if (listed && module.scheme.quantized() && dtype_bits(module.scheme.weight) < 16) {
      groups.add(module.role, {Level::warning, "config-excludes-quantized", module.name,
                               "quantized tensors: " + module.evidence,
                               fmt::format("plain ones: {} lists {}", verdict.entry->source,
                                           quote(verdict.entry->text))});
    }
    // gpt-oss quantizes experts only.
    const bool compared = compares && verdict.kind == ModuleRules::Verdict::Kind::none &&
                          is_replaced(producer, module);
    const auto level =
        compared ? plain_level(taken, draft, quark ? &*quark : nullptr) : std::nullopt;
    if (level) {
      groups.add(module.role, {*level, "config-expects-quantized", module.name,
                               "plain tensors: " + module.evidence,
                               fmt::format("quantized ones: {} {}", list, verb)});
    }
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

// Whether a reader of the rules has said of a pattern what is wrong with it.
bool is_said(const Inventory& inventory, const Finding& finding) {
  if (finding.rule != "pattern-invalid" && finding.rule != "pattern-limit") return false;
  return std::any_of(inventory.findings.begin(), inventory.findings.end(),
                     [&](const Finding& other) {
                       return other.found == finding.found ||
                              (other.rule == "pattern-limit" && other.rule == finding.rule);
                     });
}

// Rules that give modules a scheme of their own.
void check_rules(Inventory& inventory, std::span<const std::string_view> names) {
  std::set<std::pair<Producer, std::string>> known;
  for (const Declaration& declaration : inventory.declared.all) {
    std::vector<PatternEntry> entries = rule_entries(declaration);
    std::erase_if(entries, [&](const PatternEntry& entry) {
      return !known.emplace(declaration.producer, entry.text).second;
    });
    if (entries.empty()) continue;
    const ModuleRules rules(rule_dialect(declaration.producer), std::move(entries),
                            declaration.budget);
    const ListContext context{says_contradicted(inventory.findings), inventory.num_layers};
    for (Finding& finding : rules.report(names, context)) {
      if (!is_said(inventory, finding)) inventory.findings.push_back(std::move(finding));
    }
  }
}

// Whose loaders take every linear layer where there is no list: what both the config and a module
// say.
std::optional<Producer> listless_producer(const Inventory& inventory) {
  const Declaration* declared = inventory.declared.first();
  if (declared == nullptr) return std::nullopt;
  const Producer producer = list_producer(*declared);
  const bool all = producer == Producer::bitsandbytes || producer == Producer::quark ||
                   producer == Producer::fp8;
  const bool any =
      std::any_of(inventory.drafts.begin(), inventory.drafts.end(), [&](const Draft& draft) {
        return draft.module.scheme.quantized() && draft.module.scheme.producer == producer;
      });
  return all && any ? std::optional(producer) : std::nullopt;
}

}  // namespace

void check_module_rules(Inventory& inventory) {
  std::map<Producer, std::vector<PatternEntry>> by_producer;
  std::set<std::pair<Producer, std::string>> known;
  for (const Declaration& declaration : inventory.declared.all) {
    std::vector<PatternEntry> entries = ignore_entries(declaration);
    check_lists_agree(inventory, entries);
    for (PatternEntry& entry : entries) {
      const Producer producer = list_producer(declaration);
      if (!known.emplace(producer, entry.text).second) continue;
      by_producer[producer].push_back(std::move(entry));
    }
  }
  const std::vector<std::string> experts = expert_names(inventory);
  const std::vector<std::string_view> names = module_names(inventory, experts);
  check_rules(inventory, names);
  const std::optional<Producer> listless = listless_producer(inventory);
  if (listless) by_producer[*listless];
  for (auto& [producer, entries] : by_producer) {
    if (producer == Producer::unknown) continue;
    if (entries.empty() && producer != listless) continue;
    const ModuleRules rules(dialect_of(producer), std::move(entries),
                            inventory.declared.all.front().budget);
    check_contradictions(inventory, producer, rules);
    const ListContext context{says_contradicted(inventory.findings), inventory.num_layers};
    for (Finding& finding : rules.report(names, context)) {
      inventory.findings.push_back(std::move(finding));
    }
    check_fused(inventory, rules);
  }
}

}  // namespace fewbit
