// SPDX-License-Identifier: Apache-2.0
// What the config files say against each other, and what makes stored weights another model's.
#include <fmt/format.h>

#include <algorithm>

#include "core/quote.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

// A value that says something: no null, no empty object or list.
const Json* said(const Json& block, std::string_view key) {
  const Json* value = block.find(key);
  if (value == nullptr || value->is_null()) return nullptr;
  if (value->as_object() != nullptr && value->as_object()->empty()) return nullptr;
  if (value->as_array() != nullptr && value->as_array()->empty()) return nullptr;
  if (value->as_bool() == false) return nullptr;
  return value;
}

// The first two places that name different producers. AutoRound writes the config of the layout
// that it exports to beside its own.
void check_methods(Inventory& inventory) {
  const std::vector<Declaration>& all = inventory.declared.all;
  const auto exports = [](const Declaration& one) { return one.producer == Producer::auto_round; };
  if (std::any_of(all.begin(), all.end(), exports)) return;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].producer == all.front().producer) continue;
    inventory.findings.push_back({Level::warning, "config-methods-differ", all[i].where,
                                  fmt::format("quant_method {}", quote(all[i].method)),
                                  fmt::format("{} as {} says, or no second config",
                                              quote(all.front().method), all.front().where)});
    return;
  }
}

// Weights that were multiplied by an orthogonal matrix: right only with its inverse at run time.
void check_rotation(Inventory& inventory, const Declaration& declaration) {
  for (const std::string_view key : {"rotation_config", "rotation"}) {
    if (said(*declaration.block, key) == nullptr) continue;
    inventory.findings.push_back(
        {Level::error, "config-rotation", declaration.where, fmt::format("a {}", key),
         "weights as the model has them: rotated ones need the inverse on the activations"});
  }
}

}  // namespace

void check_declared(Inventory& inventory) {
  check_methods(inventory);
  for (const Declaration& declaration : inventory.declared.all) {
    if (declaration.block->is_object()) check_rotation(inventory, declaration);
  }
}

}  // namespace fewbit
