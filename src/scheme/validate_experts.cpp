// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "scheme/config_section.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/part_of_model.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t most_experts = 1 << 16;

// What one layer holds.
struct Layer {
  std::map<Role, std::map<int, const Module*>> experts;  // by role, then expert id
  std::int64_t router_rows = 0;
};

// The layer; of a token-prediction head, whose layers have no number of their own, the experts.
std::string place_of(const Module& module) {
  const bool numbered = module.layer >= 0;
  return numbered ? layer_path(module.name) : module.name.substr(0, module.name.find(".experts"));
}

// By path: a model may have several stacks of layers.
std::map<std::string, Layer> layers_of(const Identified& identified) {
  std::map<std::string, Layer> layers;
  for (const Module& module : identified.modules) {
    if (module.layer >= 0 && module.role == Role::router) {
      layers[layer_path(module.name)].router_rows = module.n;
    }
    if (module.expert < 0 || module.expert >= most_experts) continue;
    if (module.role == Role::gate_proj || module.role == Role::up_proj ||
        module.role == Role::down_proj || module.role == Role::gate_up_proj) {
      layers[place_of(module)].experts[module.role].emplace(module.expert, &module);
    }
  }
  return layers;
}

// The router's rows, or the highest expert id of any role.
std::int64_t expert_count(const Layer& layer) {
  std::int64_t count = std::min(layer.router_rows, most_experts);
  for (const auto& [role, modules] : layer.experts) {
    count = std::max<std::int64_t>(count, modules.rbegin()->first + 1);
  }
  return count;
}

void validate_complete(Validation& validation, const std::string& path, const Layer& layer) {
  const std::int64_t count = expert_count(layer);
  for (const auto& [role, modules] : layer.experts) {
    if (static_cast<std::int64_t>(modules.size()) == count) continue;
    std::string missing;
    for (int e = 0; e < count && missing.size() < 80; ++e) {
      if (!modules.contains(e)) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", e);
    }
    validation.add(*modules.begin()->second, Level::error, "experts-missing",
                   fmt::format("{} {}", path, role_name(role)),
                   fmt::format("{} experts, without {}", modules.size(), missing),
                   fmt::format("experts 0 to {}", count - 1));
  }
}

std::string shape_of(std::int64_t n, std::int64_t k) { return fmt::format("[{}, {}]", n, k); }

// Widths that the config states for several kinds of experts; empty where it states one or none.
std::set<std::int64_t> stated_widths(const Checkpoint& checkpoint) {
  const auto config = checkpoint.json_file("config.json");
  const Json* list = config && *config ? (*config)->find("moe_intermediate_size") : nullptr;
  std::set<std::int64_t> widths;
  if (list == nullptr || !list->is_array()) return widths;
  for (const Json& width : *list->as_array()) {
    if (const auto value = width.as_int64()) widths.insert(*value);
  }
  return widths;
}

std::int64_t width_of(const Module& module) {
  if (module.role == Role::gate_up_proj) return module.n / 2;
  return module.role == Role::down_proj ? module.k : module.n;
}

// Experts of one projection have one shape, or one of the widths that the config states.
void validate_shapes(Validation& validation, const std::string& path, const Layer& layer) {
  const std::set<std::int64_t> widths = stated_widths(validation.checkpoint);
  for (const auto& [role, modules] : layer.experts) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::pair<std::int64_t, const Module*>> shapes;
    for (const auto& [expert, module] : modules) {
      if (!module->unreadable.empty() || module->k == 0) continue;
      auto& [count, first] = shapes[{module->n, module->k}];
      if (count++ == 0) first = module;
    }
    if (shapes.size() < 2) continue;
    const auto usual = std::max_element(
        shapes.begin(), shapes.end(),
        [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
    for (const auto& [shape, found] : shapes) {
      if (shape == usual->first || widths.contains(width_of(*found.second))) continue;
      validation.add(
          *found.second, Level::error, "experts-shape", found.second->name,
          fmt::format("{} in {} of {} experts of {}", shape_of(shape.first, shape.second),
                      found.first, modules.size(), path),
          shape_of(usual->first.first, usual->first.second) + ", as the others have");
    }
  }
}

}  // namespace

void validate_experts(Validation& validation) {
  const bool part = is_part_of_model(validation.checkpoint);
  for (const auto& [path, layer] : layers_of(validation.identified)) {
    if (layer.experts.empty()) continue;
    if (!part) validate_complete(validation, path, layer);
    validate_shapes(validation, path, layer);
  }
}

// Tensors that hold all experts of a layer hold the same ones.
void validate_fused_counts(Validation& validation) {
  struct First {
    const Module* fused = nullptr;
    const Module* router = nullptr;
  };
  std::map<std::string, First> layers;
  for (const Module& module : validation.identified.modules) {
    if (module.layer < 0 || module.role != Role::router || module.k < 1) continue;
    layers[layer_path(module.name)].router = &module;
  }
  for (const Module& module : validation.identified.modules) {
    if (module.layer < 0 || module.expert != all_experts || module.experts < 1 ||
        !module.unreadable.empty())
      continue;
    First& first = layers[layer_path(module.name)];
    if (first.fused == nullptr) {
      first.fused = &module;
    } else if (first.fused->experts != module.experts) {
      validation.add(module, Level::error, "experts-count", module.name,
                     fmt::format("{} experts", module.experts),
                     fmt::format("{} as in {}", first.fused->experts, first.fused->name));
    }
  }
  for (const auto& [layer, first] : layers) {
    if (first.fused == nullptr || first.router == nullptr) continue;
    if (first.router->n == first.fused->experts) continue;
    validation.add(*first.fused, Level::error, "experts-count", first.fused->name,
                   fmt::format("{} experts", first.fused->experts),
                   fmt::format("{}, one for each row of {}", first.router->n, first.router->name));
  }
}

}  // namespace fewbit
