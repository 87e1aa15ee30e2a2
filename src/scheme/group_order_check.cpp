// SPDX-License-Identifier: Apache-2.0
// Where desc_act is false, or not there, over columns in another order or in one that was not read.
#include <optional>
#include <utility>

#include "scheme/finding_groups.hpp"
#include "scheme/group_order.hpp"
#include "scheme/integer_config.hpp"

namespace fewbit {
namespace {

// What the config says of desc_act.
enum class Stated { nothing, no, yes };

Stated stated_of(const std::optional<IntegerConfig>& config, const Module& module) {
  if (!config) return Stated::nothing;
  const IntegerSpec spec = spec_of(*config, module.name);
  if (!spec.act_order.has_value()) return Stated::nothing;
  return *spec.act_order ? Stated::yes : Stated::no;
}

std::optional<Finding> finding_of(const Checkpoint& checkpoint, const Module& module, Stated stated,
                                  Depth depth) {
  const TensorInfo* g_idx = group_index_of(checkpoint, module);
  const bool one_group = module.scheme.scale && module.scheme.scale->granularity.cols == 0;
  if (g_idx == nullptr || one_group || stated == Stated::yes) return std::nullopt;
  if (depth == Depth::headers) {
    return Finding{Level::info, "group-index-unread", g_idx->name,
                   "not read: scheme and splits are those of groups of neighbouring columns",
                   stated == Stated::no
                       ? "nothing: the config says desc_act false, which g_idx may contradict"
                       : "nothing: no config says desc_act"};
  }
  if (stated == Stated::nothing || !is_permuted(checkpoint, module)) return std::nullopt;
  return Finding{Level::warning, "group-index-order", g_idx->name, "columns in another order",
                 "groups of neighbouring columns, as desc_act is false; g_idx is used"};
}

}  // namespace

void check_group_orders(Inventory& inventory, Depth depth) {
  const std::optional<IntegerConfig> config = first_integer_config(inventory.declared);
  FindingGroups groups;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    auto found = finding_of(*inventory.checkpoint, module, stated_of(config, module), depth);
    if (found) groups.add(module.role, *std::move(found));
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
