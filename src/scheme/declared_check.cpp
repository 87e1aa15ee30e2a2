// SPDX-License-Identifier: Apache-2.0
// What the config files say against each other, and what makes stored weights another model's.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/ascii.hpp"
#include "core/quote.hpp"
#include "scheme/config_section.hpp"
#include "scheme/modelopt_config.hpp"
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

// Whether a config may be the one that such a module was written with. FP8 has one form, whoever
// wrote it.
bool describes(const Declaration& config, const Scheme& scheme) {
  if (config.producer == scheme.producer) return scheme.quantized();
  if (!dtype_name(scheme.weight).starts_with("f8_")) return false;
  if (config.producer == Producer::fp8) return scheme.producer == Producer::modelopt;
  if (config.producer != Producer::modelopt || scheme.producer != Producer::fp8) return false;
  const auto modelopt = read_modelopt_config(config);
  return modelopt && modelopt->algorithm.find("FP8") != std::string::npos;
}

std::string said_by(const Declaration& config) {
  return fmt::format("{} as {} says", quote(config.method), config.where);
}

// Places that name different producers: the tensors tell which is left over from another version
// of the checkpoint. AutoRound writes the config of the layout that it exports to beside its own.
void check_methods(Inventory& inventory) {
  const std::vector<Declaration>& all = inventory.declared.all;
  const auto exports = [](const Declaration& one) { return one.producer == Producer::auto_round; };
  if (std::any_of(all.begin(), all.end(), exports)) return;
  const auto other = std::find_if(all.begin(), all.end(), [&](const Declaration& one) {
    return one.producer != all.front().producer;
  });
  if (other == all.end()) return;
  const auto modules = [&](const Declaration& config) {
    return std::count_if(inventory.drafts.begin(), inventory.drafts.end(), [&](const Draft& draft) {
      return describes(config, draft.module.scheme);
    });
  };
  const auto first_count = modules(all.front());
  const auto other_count = modules(*other);
  const bool both = first_count > 0 && other_count > 0;
  const bool none = first_count == 0 && other_count == 0;
  const bool first_is_stale = first_count == 0 && !none;
  const Declaration& stale = first_is_stale ? all.front() : *other;
  const Declaration& right = first_is_stale ? *other : all.front();
  std::string expected = said_by(right) + ", or no second config";
  if (both) {
    expected = fmt::format("{} too: {} modules are as the one says, {} as the other",
                           said_by(right), other_count, first_count);
  } else if (!none) {
    expected = fmt::format("{} and {} modules show: {} is stale", said_by(right),
                           std::max(first_count, other_count), stale.where);
  }
  inventory.findings.push_back({none ? Level::warning : Level::info, "config-methods-differ",
                                stale.where, fmt::format("quant_method {}", quote(stale.method)),
                                std::move(expected)});
}

// Quark's rotations; those that it folds into both neighbours (r1, r2) need nothing at run time.
bool is_rotation(const Json& algorithm) {
  const Json* name = algorithm.is_object() ? algorithm.find("name") : nullptr;
  const std::string* text = name != nullptr ? name->as_string() : algorithm.as_string();
  if (text == nullptr) return false;
  const std::string lower = lower_ascii(*text);
  constexpr std::string_view names[] = {"quarot", "rotation", "spinquant", "hadamard"};
  if (std::none_of(std::begin(names), std::end(names),
                   [&](std::string_view one) { return lower.find(one) != std::string::npos; })) {
    return false;
  }
  const auto flag = [&](std::string_view key) -> std::optional<bool> {
    const Json* value = algorithm.is_object() ? algorithm.find(key) : nullptr;
    return value != nullptr ? value->as_bool() : std::nullopt;
  };
  return flag("r4") != false || flag("online_r1_rotation") == true;
}

// The key that says so; empty when none does.
std::string_view rotation_key(const Declaration& declaration) {
  for (const std::string_view key : {"rotation_config", "rotation"}) {
    if (said(*declaration.block, key) != nullptr) return key;
  }
  constexpr std::string_view steps = "algo_config";
  const Json* list = said(*declaration.block, steps);
  if (declaration.producer != Producer::quark || list == nullptr) return {};
  if (list->as_array() == nullptr) return is_rotation(*list) ? steps : std::string_view();
  const bool any = std::any_of(list->as_array()->begin(), list->as_array()->end(), is_rotation);
  return any ? steps : std::string_view();
}

// Weights that were multiplied by an orthogonal matrix: right only with its inverse at run time.
void check_rotation(Inventory& inventory, const Declaration& declaration) {
  const std::string_view key = rotation_key(declaration);
  if (key.empty()) return;
  inventory.findings.push_back(
      {Level::error, "config-rotation", declaration.where,
       fmt::format("{} {}", key.starts_with('a') ? "an" : "a", key),
       "weights as the model has them: rotated ones need the inverse on the activations"});
  for (Draft& draft : inventory.drafts) {
    Module& module = draft.module;
    if (!module.scheme.quantized() || !module.unreadable.empty()) continue;
    module.unreadable =
        fmt::format("rotated, as {} of {} says: its values need the inverse on the activations",
                    key, declaration.where);
  }
}

// Codes where the config says that all is plain.
void check_plain_statement(Inventory& inventory, const Declaration& declaration) {
  const std::string statement = plain_statement(declaration);
  if (statement.empty()) return;
  const auto codes = std::find_if(
      inventory.drafts.begin(), inventory.drafts.end(),
      [](const Draft& draft) { return draft.claimed && draft.module.scheme.quantized(); });
  if (codes == inventory.drafts.end()) return;
  inventory.findings.push_back(
      {Level::warning, "config-format", declaration.where, statement,
       fmt::format("{}, as {} has", scheme_text(codes->module.scheme), codes->module.name)});
}

}  // namespace

void check_declared(Inventory& inventory) {
  check_methods(inventory);
  for (const Declaration& declaration : inventory.declared.all) {
    for (const auto& [outer, inner] : declaration.hidden) {
      inventory.findings.push_back({Level::warning, "config-places-differ", declaration.where,
                                    outer + " in the block around it", inner + ", which counts"});
    }
    if (declaration.block->is_object()) {
      check_rotation(inventory, declaration);
      check_plain_statement(inventory, declaration);
    } else {
      inventory.findings.push_back({Level::warning, "config-value", declaration.where,
                                    value_text(*declaration.block),
                                    "an object with quant_method; of a bare name nothing but the "
                                    "method is known"});
    }
  }
}

}  // namespace fewbit
