// SPDX-License-Identifier: Apache-2.0
// Where the config of GPTQ, AWQ or AutoRound and the tensors contradict each other. The tensors
// win.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/quote.hpp"
#include "scheme/affine_words.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/integer_config.hpp"
#include "scheme/integer_layout.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

std::string number_or_none(std::optional<std::int64_t> value) {
  return value ? fmt::format("{}", *value) : "none";
}

std::string group_text(std::int64_t size) {
  return size == 0 ? "whole rows" : fmt::format("{}", size);
}

bool is_ours(const Module& module) {
  return is_integer_words(module.scheme.packing) || is_affine_words(module.scheme);
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
  const bool affine = is_affine_words(module.scheme);
  const bool says_affine = is_affine_format(config.format);
  if (says_affine != affine && (says_affine || !config.format.empty())) {
    groups.add(module.role, {Level::warning, "config-format", module.name,
                             fmt::format("format {} by {}", quote(config.format), config.where),
                             affine ? "MLX words by the tensors: " + module.evidence
                                    : "no MLX words by the tensors: " + module.evidence});
    return;
  }
  if (!config.packing || affine) return;
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

// AutoRound's names: "mx_fp", "nv_fp4", "fp8" are of floats, "int", "fp8_to_int_sym" of integers.
void check_data_type(const IntegerConfig& config, const Module& module, FindingGroups& groups) {
  if (config.producer != Producer::auto_round || !module.scheme.quantized()) return;
  const std::string type = spec_of(config, module.name).data_type;
  const std::string_view weight = dtype_name(module.scheme.weight);
  const bool floats = weight.starts_with("f8_") || weight.starts_with("f4_");
  const bool integer = is_integer_words(module.scheme.packing);
  const bool says_integer = type.find("int") != std::string::npos;
  const bool says_floats = !says_integer && (type.find("fp") != std::string::npos ||
                                             type.starts_with("mx") || type.starts_with("nv"));
  if (!(integer && says_floats) && !(floats && says_integer)) return;
  groups.add(module.role, {Level::warning, "config-format", module.name,
                           fmt::format("data_type {} by {}", quote(type), config.where),
                           scheme_text(module.scheme) + " by the tensors: " + module.evidence});
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
  const auto bytes = inventory.checkpoint->tensor(*zeros).view.bytes;
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
void check_exclusion(const Inventory& inventory, const IntegerConfig& config, const Module& module,
                     FindingGroups& groups) {
  const bool plain = !module.scheme.quantized();
  if (plain && (!is_projection(module.role) || module.role == Role::router)) return;
  if (plain && is_prediction(inventory, module)) return;
  if (!plain && !is_ours(module)) return;
  const std::string exclusion = exclusion_of(config, module);
  if (!plain && !exclusion.empty()) {
    groups.add(module.role, {Level::warning, "config-excludes-quantized", module.name,
                             "quantized tensors: " + module.evidence,
                             fmt::format("plain ones by {}: {}", config.where, exclusion)});
  }
  const auto bits = spec_of(config, module.name).bits;
  if (plain && exclusion.empty()) {
    groups.add(
        module.role,
        {Level::warning, "config-expects-quantized", module.name,
         "plain tensors: " + module.evidence,
         fmt::format("{} by {}, which does not exclude it",
                     bits ? fmt::format("{} bits", *bits) : std::string("codes"), config.where)});
  }
}

std::string summary(const IntegerConfig& config) {
  const IntegerSpec& base = config.base;
  return fmt::format("format {}, bits {}, group_size {}, sym {}, desc_act {}", quote(config.format),
                     number_or_none(base.bits), number_or_none(base.group_size),
                     number_or_none(base.symmetric), number_or_none(base.act_order));
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
  FindingGroups types;
  bool any = false;
  for (const Draft& draft : inventory.drafts) {
    check_data_type(config, draft.module, types);
    check_exclusion(inventory, config, draft.module, groups);
    if (!is_ours(draft.module)) continue;
    any = true;
    if (is_integer_words(draft.module.scheme.packing))
      check_sizes(config, spec_of(config, draft.module.name), draft.module, groups);
    check_layout(config, draft.module, groups);
    check_zeros(inventory, config, draft, groups);
  }
  add_findings(inventory, std::move(types));
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
  if (config.rules.starved() > 0) {
    const Error& first = config.rules.first_starved();
    inventory.findings.push_back({Level::warning, "pattern-limit", first.where,
                                  fmt::format("{} patterns are not tried on every name: {}",
                                              config.rules.starved(), first.what),
                                  "nothing of these: fewer steps for the others"});
  }
  for (std::size_t i = 1; i < configs.size(); ++i) {
    if (summary(configs[i]) == summary(config)) continue;
    inventory.findings.push_back({Level::warning, "config-places-differ", configs[i].where,
                                  summary(configs[i]),
                                  "as in " + config.where + ": " + summary(config)});
  }
}

}  // namespace fewbit
