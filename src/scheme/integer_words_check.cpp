// SPDX-License-Identifier: Apache-2.0
// Where the config of GPTQ, AWQ or AutoRound and the tensors contradict each other. The tensors
// win.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/quote.hpp"
#include "scheme/affine_words.hpp"
#include "scheme/auto_round_check.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/integer_config.hpp"
#include "scheme/integer_layout.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/passing_tensor.hpp"
#include "scheme/reader.hpp"
#include "scheme/taken_matrices.hpp"

namespace fewbit {
namespace {

std::string number_or_none(std::optional<std::int64_t> value) {
  return value ? fmt::format("{}", *value) : "none";
}

std::string group_text(std::int64_t size) {
  return size == 0 ? "whole rows" : fmt::format("{}", size);
}

// A group as long as the row, or longer, is the whole row.
std::int64_t row_group(std::int64_t size, std::int64_t k) { return size >= k ? 0 : size; }

void check_sizes(const IntegerConfig& config, const IntegerSpec& spec, const Module& module,
                 FindingGroups& groups) {
  const IntegerFit fit = integer_fit_of(module.scheme, module.n, module.k);
  const std::string tensors = "the tensors: " + module.evidence;
  if (spec.bits && *spec.bits != fit.bits) {
    groups.add(module.role, {Level::warning, "config-bits", module.name,
                             fmt::format("{} bits by {}", *spec.bits, config.where),
                             fmt::format("{} bits by {}", fit.bits, tensors)});
  }
  if (spec.group_size && row_group(*spec.group_size, fit.k) != row_group(fit.group_size, fit.k)) {
    groups.add(module.role,
               {Level::warning, "config-group-size", module.name,
                fmt::format("group_size {} by {}", group_text(*spec.group_size), config.where),
                fmt::format("{} by {}", group_text(fit.group_size), tensors)});
  }
}

void check_layout(const IntegerConfig& config, const Module& module, FindingGroups& groups) {
  if (!config.packing || !is_integer_words(module.scheme.packing)) return;
  const bool along_k =
      *config.packing == Packing::words_k || *config.packing == Packing::words_k_minus;
  const bool same = along_k ? module.scheme.packing == Packing::words_k ||
                                  module.scheme.packing == Packing::words_k_minus
                            : module.scheme.packing == *config.packing;
  if (same) return;
  const IntegerFit fit = integer_fit_of(module.scheme, module.n, module.k);
  groups.add(module.role, {Level::warning, "config-format", module.name,
                           fmt::format("format {} by {}", quote(config.format), config.where),
                           integer_fit_text(fit) + " by the tensors: " + module.evidence});
}

void add_findings(Inventory& inventory, FindingGroups groups) {
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

// AWQ's zero points are stored as they are: 8 where the config says that there are none.
void check_zeros(const Inventory& inventory, const IntegerConfig& config, const Draft& draft,
                 FindingGroups& groups) {
  const Module& module = draft.module;
  const bool along_n = module.scheme.packing == Packing::words_n;
  const TensorInfo* zeros = draft.tensor("qzeros");
  if (!along_n || zeros == nullptr || spec_of(config, module.name).symmetric != true) return;
  const PassingTensor stored(*inventory.checkpoint, *zeros);
  const auto bytes = stored.bytes();
  const auto wrong = std::count_if(bytes.begin(), bytes.end(),
                                   [](std::byte byte) { return byte != std::byte{0x88}; });
  if (wrong == 0) return;
  groups.add(module.role,
             {Level::warning, "zeros-not-symmetric", zeros->name,
              fmt::format("{} of {} pairs of zero points are not 8", wrong, bytes.size()),
              fmt::format("8 everywhere, as zero_point is false in {}; the stored ones count",
                          config.where)});
}

// Modules that the config leaves alone and the tensors don't, and the other way round.
void check_exclusion(const IntegerConfig& config, const TakenMatrices& taken, const Draft& draft,
                     FindingGroups& groups) {
  const Module& module = draft.module;
  const bool plain = !module.scheme.quantized();
  const auto level = taken.level(draft, names_module(config, module.name), true);
  if (plain && (!level || module.role == Role::router)) return;
  if (!plain && !is_compared_with_config(module)) return;
  const auto [exclusion, partly] = exclusion_of(config, module);
  if (partly) {
    const bool by_rules = config.rules.excludes_partly(module.name);
    if (!by_rules && exclusion.empty()) return;  // said of lists elsewhere
    groups.add(module.role, {Level::warning, "fused-partly-excluded", module.name,
                             fmt::format("some of its parts excluded by {} of {}, others not",
                                         by_rules ? "rules" : exclusion, config.where),
                             "all parts of a matrix that is stored as one, or none"});
    return;
  }
  if (!plain && !exclusion.empty()) {
    groups.add(module.role, {Level::warning, "config-excludes-quantized", module.name,
                             "quantized tensors: " + module.evidence,
                             fmt::format("plain ones by {}: {}", config.where, exclusion)});
  }
  const auto bits = spec_of(config, module.name).bits;
  if (plain && exclusion.empty()) {
    groups.add(
        module.role,
        {*level, "config-expects-quantized", module.name, "plain tensors: " + module.evidence,
         fmt::format("{} by {}, which does not exclude it",
                     bits ? fmt::format("{} bits", *bits) : std::string("codes"), config.where)});
  }
}

void check_module(const Inventory& inventory, const IntegerConfig& config, const Draft& draft,
                  FindingGroups& groups) {
  const Module& module = draft.module;
  const bool words = is_integer_words(module.scheme.packing);
  if (words) check_sizes(config, spec_of(config, module.name), module, groups);
  check_layout(config, module, groups);
  check_zeros(inventory, config, draft, groups);
  if (config.producer != Producer::auto_round) return;
  check_auto_round_format(config, module, groups);
  if (!module.unreadable.empty()) return;
  check_auto_round_type(config, module, groups);
  if (is_affine_words(module.scheme)) {
    check_mlx_copy(config, module, groups);
  } else if (!words) {
    check_auto_round_sizes(config, module, groups);
  }
}

std::string summary(const IntegerConfig& config) {
  const IntegerSpec& base = config.base;
  const std::string type =
      base.data_type.empty() ? std::string() : ", data_type " + quote(base.data_type);
  return fmt::format("format {}, bits {}, group_size {}, sym {}, desc_act {}{}",
                     quote(config.format), number_or_none(base.bits),
                     number_or_none(base.group_size), number_or_none(base.symmetric),
                     number_or_none(base.act_order), type);
}

}  // namespace

void check_integer_words(Inventory& inventory) {
  std::vector<IntegerConfig> configs;
  for (const Declaration& declaration : inventory.declared.all) {
    if (auto config = read_integer_config(declaration)) configs.push_back(*std::move(config));
  }
  if (configs.empty()) return;
  const IntegerConfig& config = configs.front();
  FindingGroups groups;
  const TakenMatrices taken(inventory);
  bool any = false;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    check_exclusion(config, taken, draft, groups);
    if (!is_compared_with_config(module)) continue;
    any = true;
    check_module(inventory, config, draft, groups);
  }
  if (!any) return;
  add_findings(inventory, std::move(groups));
  for (const Error& problem : config.problems) {
    inventory.findings.push_back(
        {Level::warning, "config-value", problem.where, problem.what, "a value that can be used"});
  }
  for (const Error& limit : config.rules.limits()) {
    inventory.findings.push_back({Level::warning, "pattern-limit", limit.where, limit.what,
                                  "a pattern that matches in bounded time; it is not used"});
  }
  if (auto starved = config.rules.starved()) inventory.findings.push_back(*std::move(starved));
  for (std::size_t i = 1; i < configs.size(); ++i) {
    if (summary(configs[i]) == summary(config)) continue;
    inventory.findings.push_back({Level::warning, "config-places-differ", configs[i].where,
                                  summary(configs[i]),
                                  "as in " + config.where + ": " + summary(config)});
  }
}

}  // namespace fewbit
