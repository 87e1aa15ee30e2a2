// SPDX-License-Identifier: Apache-2.0
#include "scheme/group_order.hpp"

#include <set>
#include <utility>

#include "scheme/group_index.hpp"
#include "scheme/integer_layout.hpp"
#include "scheme/passing_tensor.hpp"

namespace fewbit {
namespace {

// Gate and up of a layer's experts have one scheme, down another.
using ExpertPlace = std::pair<int, bool>;

ExpertPlace place_of(const Module& module) {
  return {module.layer, module.role == Role::down_proj};
}

std::int64_t group_columns(const Module& module) {
  return module.scheme.scale ? module.scheme.scale->granularity.cols : 0;
}

}  // namespace

const TensorInfo* group_index_of(const Checkpoint& checkpoint, const Module& module) {
  if (!module.unreadable.empty() || !is_integer_words(module.scheme.packing)) return nullptr;
  const std::string_view name = module.part("g_idx");
  const TensorInfo* info = name.empty() ? nullptr : checkpoint.find(name);
  const bool fits = info != nullptr && info->dtype == DType::i32 && info->shape == Shape{module.k};
  return fits ? info : nullptr;
}

bool is_permuted(const Checkpoint& checkpoint, const Module& module) {
  const TensorInfo* info = group_index_of(checkpoint, module);
  if (info == nullptr) return false;
  const PassingTensor g_idx(checkpoint, *info);
  return !columns_in_order(g_idx.view(), group_columns(module));
}

void read_group_orders(const Checkpoint& checkpoint, const std::vector<Module*>& modules) {
  std::vector<Module*> indexed;
  std::set<ExpertPlace> ordered;  // with an expert in act-order
  for (Module* module : modules) {
    if (group_index_of(checkpoint, *module) == nullptr) continue;
    ActOrder& order = module->scheme.act_order;
    if (group_columns(*module) <= 0) {
      order = ActOrder::none;
      continue;
    }
    if (order == ActOrder::none && is_permuted(checkpoint, *module)) order = ActOrder::group;
    if (module->expert == -1) continue;
    indexed.push_back(module);
    if (order == ActOrder::group) ordered.insert(place_of(*module));
  }
  for (Module* module : indexed) {
    if (ordered.contains(place_of(*module))) module->scheme.act_order = ActOrder::group;
  }
}

void read_group_orders(const Checkpoint& checkpoint, std::vector<Module>& modules) {
  std::vector<Module*> each;
  for (Module& module : modules) each.push_back(&module);
  read_group_orders(checkpoint, each);
}

}  // namespace fewbit
