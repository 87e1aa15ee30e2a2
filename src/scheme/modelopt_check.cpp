// SPDX-License-Identifier: Apache-2.0
// Where a ModelOpt config and the tensors contradict each other. The tensors win.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "core/quote.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/fused_names.hpp"
#include "scheme/modelopt_config.hpp"
#include "scheme/modelopt_formats.hpp"
#include "scheme/module_rules.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/near_names.hpp"
#include "scheme/reader.hpp"
#include "scheme/taken_matrices.hpp"

namespace fewbit {
namespace {

// Parts of other modalities, which loaders of ModelOpt's files leave alone unasked.
bool is_vision(std::string_view module) {
  return module.find("vision_tower") != std::string_view::npos ||
         module.find("vision_model") != std::string_view::npos ||
         module.find("visual") != std::string_view::npos;
}

std::vector<PatternEntry> entries_of(const ModeloptConfig& config) {
  std::vector<PatternEntry> entries;
  for (const std::string& text : config.exclude) entries.push_back({text, config.where});
  return entries;
}

std::string algorithm_text(const ModeloptConfig& config) {
  if (!config.algorithm.empty()) return config.where + " says " + config.algorithm;
  return "quantized ones: " + config.where + " is ModelOpt's, without a quant_algo";
}

// What a config says of every module: its list, read as check_module_rules() reads it, or its table
// of layers.
class Expectation {
 public:
  Expectation(const ModeloptConfig& config, const Inventory& inventory)
      : config_(config),
        excluded_(dialect_of(Producer::modelopt), entries_of(config),
                  inventory.declared.all.front().budget) {
    codes_ = std::any_of(inventory.drafts.begin(), inventory.drafts.end(), [](const Draft& draft) {
      return draft.claimed && draft.module.scheme.quantized();
    });
  }

  // Of a plain module that should have codes. Where none has, the weights would be quantized while
  // loading, or the config is another checkpoint's.
  Level level_of_plain() const { return codes_ ? Level::warning : Level::error; }

  // Empty: quantized.
  std::string why_plain(const Module& module) const {
    if (config_.quantized_layers) {
      const ModeloptConfig::Layer* layer = modelopt_layer(config_, module.name);
      if (layer == nullptr) return "quantized_layers does not list it";
      if (layer->said == "null") return "quantized_layers has quant_algo null for it";
    } else if (is_vision(module.name)) {
      return "it belongs to a vision tower";
    }
    const ModuleRules::Verdict verdict = excluded_.judge(module);
    if (verdict.kind != ModuleRules::Verdict::Kind::whole) return "";
    return fmt::format("its list excludes {}", quote(verdict.entry->text));
  }

  // Whether the table has an entry for this module alone.
  bool names(const std::string& module) const {
    const ModeloptConfig::Layer* layer = modelopt_layer(config_, module);
    return layer != nullptr && layer->inner == without_wrapper_prefix(module);
  }

  // An entry of the table for this module alone, which the list excludes.
  const ModeloptConfig::Layer* listed_twice(const Module& module) const {
    const ModeloptConfig::Layer* layer = modelopt_layer(config_, module.name);
    const bool itself = layer != nullptr && layer->inner == without_wrapper_prefix(module.name);
    return itself && !why_plain(module).empty() ? layer : nullptr;
  }

 private:
  const ModeloptConfig& config_;
  ModuleRules excluded_;
  bool codes_ = false;  // anywhere in the checkpoint
};

void check_module(const ModeloptConfig& config, const Expectation& expectation,
                  const TakenMatrices& taken, const Draft& draft, FindingGroups& groups) {
  const Module& module = draft.module;
  const bool quantized = module.scheme.producer == Producer::modelopt;
  const auto level = taken.level(draft, expectation.names(module.name), false);
  if (!quantized && !level) return;
  const std::string why_plain = expectation.why_plain(module);
  if (quantized && !why_plain.empty()) {
    groups.add(module.role, {Level::warning, "config-excludes-quantized", module.name,
                             "quantized tensors: " + module.evidence,
                             fmt::format("plain ones: {}: {}", config.where, why_plain)});
  }
  // What is no algorithm says of no module that it is quantized.
  if (level && why_plain.empty() && !config.odd) {
    groups.add(module.role,
               {*level == Level::info ? Level::info : expectation.level_of_plain(),
                "config-expects-quantized", module.name, "plain tensors: " + module.evidence,
                fmt::format("{}, and it does not exclude it", algorithm_text(config))});
  }
  const ModeloptConfig::Layer* twice = level ? expectation.listed_twice(module) : nullptr;
  if (twice != nullptr) {
    groups.add(module.role, {Level::warning, "config-expects-quantized", module.name,
                             "plain tensors: " + module.evidence,
                             fmt::format("{} as quantized_layers of {} says, although {}",
                                         twice->algorithm, config.where, why_plain)});
  }
}

// Groups of another length than the module's own entry says.
void check_layer_group_size(const ModeloptConfig& config, const Module& module,
                            FindingGroups& groups) {
  const Scheme& scheme = module.scheme;
  const ModeloptConfig::Layer* layer = modelopt_layer(config, module.name);
  const bool grouped = scheme.weight == DType::f4_e2m1 || scheme.weight == DType::i4;
  if (layer == nullptr || !layer->group_size || !grouped || !scheme.scale) return;
  if (scheme.producer != Producer::modelopt || !module.unreadable.empty()) return;
  const std::int64_t cols = scheme.scale->granularity.cols;
  const std::int64_t stored = cols == 0 ? module.k : cols;
  const bool one_a_row = stored >= module.k && *layer->group_size >= module.k;
  if (stored == *layer->group_size || one_a_row) return;
  groups.add(module.role,
             {Level::warning, "config-group-size", module.name,
              fmt::format("group_size {} of {} quantized_layers", *layer->group_size, config.where),
              fmt::format("{}, as the scales say: {}", stored, module.evidence)});
}

// moe_quant_algo stands in the block of another producer, whose the other layers are.
void check_moe_algorithm(const Inventory& inventory, const ModeloptConfig& config,
                         const Expectation& expectation, const Module& module,
                         FindingGroups& groups) {
  if (config.moe_algorithm.empty() || module.expert == -1 || !module.scheme.quantized() ||
      !module.unreadable.empty() || is_prediction(inventory, module)) {
    return;
  }
  const bool own = !modelopt_algorithm(config, module.name).empty();
  if (config.quantized_layers ? own : !expectation.why_plain(module).empty()) return;
  if (modelopt_algorithm_fits(config.moe_algorithm, module)) return;
  groups.add(module.role,
             {Level::warning, "config-algorithm", module.name,
              scheme_text(module.scheme) + ": " + module.evidence,
              fmt::format("{} says moe_quant_algo {}", config.where, config.moe_algorithm)});
}

// One group size that no module of a format with groups has.
void check_group_size(Inventory& inventory, const ModeloptConfig& config) {
  if (config.algorithm == "MIXED_PRECISION" || config.group_sizes.empty()) return;
  for (const Draft& draft : inventory.drafts) {
    const Scheme& scheme = draft.module.scheme;
    const bool grouped = scheme.weight == DType::f4_e2m1 || scheme.weight == DType::i4;
    if (scheme.producer != Producer::modelopt || !grouped || !scheme.scale) continue;
    // One group a row is as long as the row.
    const std::int64_t cols = scheme.scale->granularity.cols;
    const std::int64_t size = cols == 0 ? draft.module.k : cols;
    const auto is_other = [&](const std::string& text) {
      const bool one_a_row =
          size >= draft.module.k && group_size_number(text).value_or(0) >= draft.module.k;
      return !one_a_row && text != std::to_string(size);
    };
    const auto other = std::find_if(config.group_sizes.begin(), config.group_sizes.end(), is_other);
    if (other == config.group_sizes.end()) continue;
    inventory.findings.push_back(
        {Level::warning, "config-group-size", config.where, "group_size " + *other,
         fmt::format("{}, as the scales of {} say", size, draft.module.name)});
    return;
  }
}

void check_algorithm(const Inventory& inventory, const ModeloptConfig& config, const Module& module,
                     FindingGroups& groups) {
  if (module.scheme.producer != Producer::modelopt || !module.unreadable.empty()) return;
  // Only an entry of its own speaks of a token-prediction layer.
  if (is_prediction(inventory, module) && modelopt_layer(config, module.name) == nullptr) return;
  const std::string algorithm = modelopt_algorithm(config, module.name);
  const bool no_low_rank = algorithm == "NVFP4_SVD" && module.part("svdquant_lora_a").empty();
  const bool fits = !no_low_rank && modelopt_algorithm_fits(algorithm, module);
  if (algorithm == "MIXED_PRECISION" || fits) return;
  groups.add(module.role, {Level::warning, "config-algorithm", module.name,
                           scheme_text(module.scheme) + ": " + module.evidence,
                           fmt::format("{} says quant_algo {}{}", config.where, algorithm,
                                       no_low_rank ? ", which has svdquant_lora parts" : "")});
}

// Mixed, and nothing says which module is what.
void check_mixed(Inventory& inventory, const std::vector<ModeloptConfig>& configs) {
  const bool named = std::any_of(configs.begin(), configs.end(), [](const ModeloptConfig& config) {
    return config.quantized_layers.has_value() || config.groups_differ;
  });
  if (named || configs.front().algorithm != "MIXED_PRECISION") return;
  inventory.findings.push_back({Level::warning, "config-algorithm", configs.front().where,
                                "quant_algo MIXED_PRECISION without quantized_layers",
                                "a table of modules with the algorithm of each"});
}

// Algorithms that fewbit has never heard of: the tensors are read for what they are.
void check_known(Inventory& inventory, const ModeloptConfig& config) {
  std::string unknown;
  if (!modelopt_algorithm_known(config.algorithm)) unknown = config.said;
  if (config.quantized_layers) {
    for (const ModeloptConfig::Layer& layer : *config.quantized_layers) {
      if (!modelopt_algorithm_known(layer.algorithm)) unknown = layer.said;
    }
  }
  if (unknown.empty()) return;
  inventory.findings.push_back({Level::warning, "config-algorithm-unknown", config.where,
                                "quant_algo " + unknown, "an algorithm that fewbit knows"});
}

// Entries of quantized_layers that name neither a module nor a parent of one.
void check_layers_exist(Inventory& inventory, const ModeloptConfig& config) {
  if (!config.quantized_layers) return;
  std::vector<std::string_view> names;
  for (const Draft& draft : inventory.drafts) {
    names.push_back(without_wrapper_prefix(draft.module.name));
  }
  std::sort(names.begin(), names.end());
  std::int64_t count = 0;
  std::string first;
  bool behind = inventory.num_layers.has_value();
  const auto exists = [&](std::string_view wanted) {
    // Names such as "experts-2" sort between a module and its children.
    for (auto at = std::lower_bound(names.begin(), names.end(), wanted);
         at != names.end() && at->starts_with(wanted); ++at) {
      if (at->size() == wanted.size() || (*at)[wanted.size()] == '.') return true;
    }
    return false;
  };
  for (const ModeloptConfig::Layer& layer : *config.quantized_layers) {
    if (modelopt_name_exists(layer.inner, exists)) continue;
    // Releases leave out the layers that predict tokens.
    const bool extra =
        inventory.num_layers && is_behind_last_layer(layer.name, *inventory.num_layers);
    if (count++ == 0 || (behind && !extra)) first = layer.name;
    behind = behind && extra;
  }
  if (count == 0) return;
  inventory.findings.push_back(
      {behind ? Level::info : Level::warning, "config-layer-unknown", config.where,
       fmt::format("{} entries of quantized_layers match nothing, such as {}", count, first),
       behind ? fmt::format("nothing: the model has {} layers", *inventory.num_layers)
              : std::string("names of modules in the file")});
}

// With the first excluded entry that the other place lacks.
std::string summary(const ModeloptConfig& config, const ModeloptConfig& other) {
  const std::unordered_set<std::string_view> there(other.exclude.begin(), other.exclude.end());
  const auto only = std::find_if(config.exclude.begin(), config.exclude.end(),
                                 [&](const auto& entry) { return !there.contains(entry); });
  return fmt::format("{}, {} excluded entries{}",
                     config.algorithm.empty() ? "no quant_algo" : "quant_algo " + config.algorithm,
                     config.exclude.size(),
                     only == config.exclude.end() ? "" : ", " + quote(*only) + " only here");
}

}  // namespace

void check_modelopt(Inventory& inventory) {
  std::vector<ModeloptConfig> configs;
  for (const Declaration& declaration : inventory.declared.all) {
    if (!plain_statement(declaration).empty()) continue;
    if (auto config = read_modelopt_config(declaration)) configs.push_back(*std::move(config));
  }
  if (configs.empty()) return;
  const ModeloptConfig& config = configs.front();
  if (configs.size() > 1 && !(configs[0] == configs[1])) {
    inventory.findings.push_back({Level::warning, "config-places-differ", configs[1].where,
                                  summary(configs[1], config),
                                  "as in " + config.where + ": " + summary(config, configs[1])});
  }
  FindingGroups groups;
  const Expectation expectation(config, inventory);
  const TakenMatrices taken(inventory);
  for (const ModeloptConfig& one : configs) check_group_size(inventory, one);
  check_known(inventory, config);
  check_mixed(inventory, configs);
  check_layers_exist(inventory, config);
  for (const Draft& draft : inventory.drafts) {
    check_module(config, expectation, taken, draft, groups);
    check_algorithm(inventory, config, draft.module, groups);
    check_layer_group_size(config, draft.module, groups);
    check_moe_algorithm(inventory, config, expectation, draft.module, groups);
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
