// SPDX-License-Identifier: Apache-2.0
#include "scheme/compressed_tensors_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "core/quote.hpp"
#include "scheme/compressed_tensors_args.hpp"
#include "scheme/config_word.hpp"
#include "scheme/fused_names.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

constexpr std::string_view linear_classes[] = {"Linear", "LinearBase"};
constexpr std::string_view embedding_classes[] = {"Embedding", "VocabParallelEmbedding"};
constexpr std::string_view head_classes[] = {"ParallelLMHead"};

template <std::size_t count>
bool one_of(std::string_view text, const std::string_view (&list)[count]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

// Classes begin with a capital letter; modules are lower case or dotted.
bool is_class(std::string_view target) {
  return !target.empty() && target[0] >= 'A' && target[0] <= 'Z' &&
         target.find('.') == std::string_view::npos;
}

bool of_class(const Module& module, std::string_view name) {
  switch (module.role) {
    case Role::embedding:
      return one_of(name, embedding_classes);
    case Role::head:
      return one_of(name, linear_classes) || one_of(name, head_classes);
    case Role::norm:
    case Role::router_bias:
      return false;
    default:
      return one_of(name, linear_classes);
  }
}

// A member that is there and says something: no null, no {}.
const Json* filled(const Json& block, std::string_view key) {
  const Json* value = block.find(key);
  if (value == nullptr || value->is_null()) return nullptr;
  const Json::Object* members = value->as_object();
  return members != nullptr && members->empty() ? nullptr : value;
}

// Whether an entry may be about projections in the spelling that the file does not have.
class OtherSpelling {
 public:
  explicit OtherSpelling(std::span<const Draft> drafts) {
    for (const Draft& draft : drafts) {
      const std::string_view name = draft.module.name;
      const std::string_view last = name.substr(name.rfind('.') + 1);
      short_ones_ = short_ones_ || last == "w1" || last == "w2" || last == "w3";
      long_ones_ = long_ones_ || last == "gate_proj" || last == "up_proj" || last == "down_proj";
    }
  }

  bool may_be_in(std::string_view text) const {
    const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
    return (short_ones_ && has("_proj")) || (long_ones_ && (has("w1") || has("w2") || has("w3")));
  }

 private:
  bool short_ones_ = false;
  bool long_ones_ = false;
};

// Names of modules, and what those of projections are in the other spelling; both in order.
struct ModuleNames {
  std::vector<std::string_view> own;
  std::vector<std::string> texts;
  std::vector<std::string_view> other;

  explicit ModuleNames(std::span<const Draft> drafts) {
    for (const Draft& draft : drafts) {
      own.push_back(draft.module.name);
      std::string name = other_spelling(draft.module.name);
      if (!name.empty()) texts.push_back(std::move(name));
    }
    std::sort(texts.begin(), texts.end());
    other.assign(texts.begin(), texts.end());
  }
};

// Takes from the entries those that name no module but one in the other spelling.
std::vector<PatternEntry> take_respelled(const Dialect& dialect, std::vector<PatternEntry>& entries,
                                         std::span<const Draft> drafts,
                                         const std::shared_ptr<MatchBudget>& budget) {
  std::vector<PatternEntry> candidates;
  const OtherSpelling spelling(drafts);
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(candidates),
               [&](const PatternEntry& entry) { return spelling.may_be_in(entry.text); });
  if (candidates.empty()) return {};
  const ModuleNames names(drafts);
  std::vector<PatternEntry> absent;
  const ModuleRules rules(dialect, candidates, budget);
  for (const std::size_t entry : rules.unmatched(names.own)) absent.push_back(candidates[entry]);
  const ModuleRules others(dialect, absent, budget);
  const std::vector<std::size_t> nowhere = others.unmatched(names.other);
  std::set<std::string> taken;
  for (const PatternEntry& entry : absent) taken.insert(entry.text);
  for (const std::size_t entry : nowhere) taken.erase(absent[entry].text);
  std::vector<PatternEntry> out;
  std::erase_if(entries, [&](const PatternEntry& entry) {
    if (!taken.contains(entry.text)) return false;
    out.push_back(entry);
    return true;
  });
  return out;
}

}  // namespace

std::optional<CtConfig> CtConfig::read(const Declared& declared, std::span<const Draft> drafts) {
  for (const Declaration& declaration : declared.all) {
    if (declaration.producer != Producer::compressed_tensors) continue;
    CtConfig config;
    config.where_ = declaration.where;
    config.budget_ = declaration.budget;
    config.read_block(*declaration.block);
    config.read_targets(drafts);
    config.ignored_ = std::make_shared<ModuleRules>(
        dialect_of(Producer::compressed_tensors), ignore_entries(declaration), declaration.budget);
    return config;
  }
  return std::nullopt;
}

void CtConfig::read_block(const Json& block) {
  format_ = word_at(block, "format");
  version_ = word_at(block, "version");
  if (const Json* groups = block.find("config_groups")) read_groups(*groups);
  read_obstacles(block);
}

void CtConfig::read_targets(std::span<const Draft> drafts) {
  const Dialect dialect = dialect_of(Producer::compressed_tensors);
  std::vector<PatternEntry> entries;
  for (const auto& [target, group] : target_groups_) {
    if (!is_class(target)) entries.push_back({target, where_ + ".config_groups", true});
  }
  std::vector<PatternEntry> others = take_respelled(dialect, entries, drafts, budget_);
  targets_ = std::make_shared<ModuleRules>(dialect, std::move(entries), budget_);
  if (others.empty()) return;
  respelled_ = std::make_shared<ModuleRules>(dialect, std::move(others), budget_);
}

void CtConfig::read_groups(const Json& groups) {
  const Json::Object* members = groups.as_object();
  if (members == nullptr) return;
  for (const auto& [name, value] : *members) read_group(name, value);
}

void CtConfig::read_group(const std::string& name, const Json& value) {
  OddValues odd;
  auto [group, targets] =
      read_ct_group(name, value, fmt::format("{}.config_groups.{}", where_, name), odd);
  for (Finding& finding : odd.findings) odd_.push_back(std::move(finding));
  if (group.format.empty() && format_ != "mixed-precision") group.format = format_;
  for (const std::string& target : targets) add_target(target, groups_.size());
  groups_.push_back(std::move(group));
}

void CtConfig::add_target(const std::string& target, std::size_t group) {
  const auto [at, is_new] = target_groups_.try_emplace(target, group);
  if (!is_new && at->second != group) {
    odd_.push_back(
        {Level::warning, "config-target-twice", where_,
         fmt::format("{} in {} and in another group", quote(target), groups_[at->second].name),
         "one group a target; the first holds"});
  }
  const bool known = one_of(target, linear_classes) || one_of(target, embedding_classes) ||
                     one_of(target, head_classes);
  if (is_class(target) && !known) unknown_classes_.push_back(target);
}

void CtConfig::read_obstacles(const Json& block) {
  if (const Json* transform = filled(block, "transform_config"); transform != nullptr) {
    obstacle_ =
        "transform_config: the weights are stored rotated, and without the inverse on the "
        "activations they are not the model's";
  }
  const Json* sparsity = filled(block, "sparsity_config");
  std::string sparse = sparsity != nullptr ? word_at(*sparsity, "format") : format_;
  if (!sparse.starts_with("sparse") && sparse != "marlin-24") sparse = format_;
  if (sparse.starts_with("sparse") || sparse == "marlin-24") {
    obstacle_ = fmt::format("sparsity format {} is not readable", quote(sparse));
  }
}

const PatternEntry* CtConfig::target_of(const std::string& module) const {
  const auto verdict = targets_->judge(module);
  if (verdict.kind == ModuleRules::Verdict::Kind::whole) return verdict.entry;
  const std::string other = respelled_ != nullptr ? other_spelling(module) : std::string();
  return other.empty() ? nullptr : respelled_->judge(other).entry;
}

const CtGroup* CtConfig::group_of(const Module& module) const {
  using Kind = ModuleRules::Verdict::Kind;
  if (ignored_->judge(module).kind == Kind::whole) return nullptr;
  if (const PatternEntry* target = target_of(module.name); target != nullptr) {
    return &groups_[target_groups_.at(target->text)];
  }
  for (const auto& [target, group] : target_groups_) {
    if (is_class(target) && of_class(module, target)) return &groups_[group];
  }
  return nullptr;
}

std::vector<Finding> CtConfig::findings(std::span<const std::string_view> modules,
                                        const ListContext& context) const {
  std::vector<Finding> out = odd_;
  for (Finding& finding : targets_->report(modules, context)) out.push_back(std::move(finding));
  for (const std::string& name : unknown_classes_) {
    out.push_back({Level::info, "config-target-class", where_, quote(name),
                   "Linear, Embedding, or names of modules: files hold no classes"});
  }
  return out;
}

}  // namespace fewbit
