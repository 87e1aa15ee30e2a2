// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "scheme/name_parts.hpp"
#include "scheme/passing_tensor.hpp"
#include "scheme/reader.hpp"

namespace fewbit {

const TensorInfo* Draft::tensor(std::string_view suffix) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (module.parts[i].suffix == suffix) return tensors[i];
  }
  return nullptr;
}

void Draft::claim(Scheme scheme) {
  claimed = true;
  module.scheme = scheme;
  module.evidence.clear();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    module.evidence += fmt::format("{}{} {} {}", i == 0 ? "" : " + ", module.parts[i].suffix,
                                   dtype_name(tensors[i]->dtype), shape_text(tensors[i]->shape));
  }
}

void Draft::refuse(Scheme scheme, std::string why) {
  claim(scheme);
  module.unreadable = std::move(why);
}

const Draft* Inventory::find(std::string_view name) const {
  const auto at = std::lower_bound(
      drafts.begin(), drafts.end(), name,
      [](const Draft& draft, std::string_view wanted) { return draft.module.name < wanted; });
  return at != drafts.end() && at->module.name == name ? &*at : nullptr;
}

Draft* Inventory::find(std::string_view name) {
  return const_cast<Draft*>(std::as_const(*this).find(name));  // NOLINT(*-const-cast)
}

bool is_left_over_zero(const Inventory& inventory, const Draft& draft, std::string_view suffix) {
  const TensorInfo* info = draft.tensor(suffix);
  if (suffix != "weight_zero_point" || info == nullptr || inventory.checkpoint == nullptr) {
    return false;
  }
  const PassingTensor tensor(*inventory.checkpoint, *info);
  return std::all_of(tensor.bytes().begin(), tensor.bytes().end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

bool is_prediction(const Inventory& inventory, const Module& module) {
  if (module.layer < 0) return outside_language_model(module.name);
  return inventory.num_layers && module.layer >= *inventory.num_layers;
}

}  // namespace fewbit
