// SPDX-License-Identifier: Apache-2.0
// AutoRound's own keys (bits, group_size, sym, data_type, extra_config) beside compressed-tensors'
// config_groups, which it writes too: both describe the same modules.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/quote.hpp"
#include "scheme/auto_round_check.hpp"
#include "scheme/compressed_tensors_config.hpp"

namespace fewbit {
namespace {

constexpr std::string_view auto_round_keys[] = {"bits", "group_size", "sym", "data_type"};

bool is_either(const Declaration& one) {
  return (one.producer == Producer::compressed_tensors || one.producer == Producer::auto_round) &&
         one.block->is_object();
}

bool has_groups(const Declaration& one) {
  const Json* groups = one.block->find("config_groups");
  return groups != nullptr && groups->is_object() && !groups->as_object()->empty();
}

bool has_own_keys(const Declaration& one) {
  return std::any_of(std::begin(auto_round_keys), std::end(auto_round_keys), [&](auto key) {
    const Json* value = one.block->find(key);
    return value != nullptr && !value->is_null();
  });
}

std::optional<Granularity> sharing_of(const CtArgs& args) {
  if (args.strategy == "tensor") return Granularity{0, 0};
  if (args.strategy == "block" || args.block) return args.block;
  if (args.group_size) return Granularity{1, *args.group_size};
  if (args.strategy == "channel") return Granularity{1, 0};
  return std::nullopt;
}

std::optional<Granularity> sharing_of(const IntegerSpec& spec) {
  if (spec.block) return spec.block;
  if (spec.group_size) return Granularity{1, *spec.group_size};
  return std::nullopt;
}

// "mx_int4" has a rule of its own.
std::optional<bool> is_floating(std::string_view type) {
  if (type.empty() || type == "mx_int4") return std::nullopt;
  if (type.find("int") != std::string_view::npos) return false;
  if (type.find("fp") != std::string_view::npos) return true;
  return std::nullopt;
}

// What both say of one module, of what they say differently.
struct Difference {
  std::string own;
  std::string group;

  void add(const std::string& ours, const std::string& theirs) {
    own += (own.empty() ? "" : ", ") + ours;
    group += (group.empty() ? "" : ", ") + theirs;
  }
};

std::string sym_text(bool symmetric) { return symmetric ? "sym true" : "sym false"; }
std::string kind_text(bool floating) { return floating ? "floats" : "integers"; }

Difference compare(const IntegerSpec& spec, const CtArgs& args, const Module& module) {
  Difference out;
  if (spec.bits && args.bits_usable && *spec.bits != args.bits) {
    out.add(fmt::format("bits {}", *spec.bits), fmt::format("num_bits {}", args.bits));
  }
  const auto own = sharing_of(spec);
  const auto theirs = sharing_of(args);
  if (own && theirs && !same_sharing(*own, *theirs, module)) {
    out.add("group_size of " + sharing_text(*own), sharing_text(*theirs));
  }
  const auto floating = is_floating(spec.data_type);
  if (floating && *floating != args.floating) {
    out.add("data_type " + quote(spec.data_type), kind_text(args.floating));
  }
  if (spec.symmetric && !args.floating && *spec.symmetric != args.symmetric) {
    out.add(sym_text(*spec.symmetric), sym_text(args.symmetric));
  }
  return out;
}

void check_module(const IntegerConfig& own, const CtConfig& groups, const Module& module,
                  FindingGroups& findings) {
  const CtGroup* group = groups.group_of(module);
  const IntegerRule* rule = own.rules.find(module.name);
  Difference out;
  if (group == nullptr && rule != nullptr && !rule->excludes && rule->spec.bits) {
    out.add(fmt::format("bits {}", *rule->spec.bits), "no group, or ignore");
  } else if (group != nullptr && group->weights && rule != nullptr && rule->excludes) {
    out.add(fmt::format("bits {}", rule->spec.bits.value_or(16)),
            fmt::format("num_bits {}", group->weights->bits));
  } else if (group != nullptr && group->weights) {
    out = compare(spec_of(own, module.name), *group->weights, module);
  }
  if (out.own.empty()) return;
  findings.add(module.role,
               {Level::warning, "config-places-differ", module.name,
                fmt::format("{} by AutoRound's keys in {}", out.own, own.where),
                fmt::format("{} by {} of {}", out.group,
                            group != nullptr ? "config_groups." + group->name : "config_groups",
                            groups.where())});
}

}  // namespace

void check_both_dialects(Inventory& inventory) {
  const std::vector<Declaration>& all = inventory.declared.all;
  const auto find = [&](bool (*has)(const Declaration&)) {
    return std::find_if(all.begin(), all.end(),
                        [&](const Declaration& one) { return is_either(one) && has(one); });
  };
  const auto with_groups = find(has_groups);
  const auto with_keys = find(has_own_keys);
  if (with_groups == all.end() || with_keys == all.end()) return;
  Declared alone;
  alone.all.push_back(*with_groups);
  alone.all.front().producer = Producer::compressed_tensors;
  const auto groups = CtConfig::read(alone, inventory.drafts);
  if (!groups) return;
  const IntegerConfig own = read_auto_round_config(*with_keys);
  FindingGroups findings;
  for (const Draft& draft : inventory.drafts) {
    if (!draft.module.scheme.quantized()) continue;
    check_module(own, *groups, draft.module, findings);
  }
  for (Finding& finding : std::move(findings).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
