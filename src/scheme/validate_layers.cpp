// SPDX-License-Identifier: Apache-2.0
// Layers of one stack compared with each other: none left out, and the same projections in each.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>

#include "checkpoint/gguf_metadata.hpp"
#include "scheme/model_hints.hpp"
#include "scheme/model_json.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// What an MLP has, as bits; a fused gate_up_proj is both.
enum Projection : unsigned { gate = 1, up = 2, down = 4 };
enum Kind : std::size_t { experts, dense, shared, kinds };
constexpr std::array<const char*, kinds> kind_names = {"experts", "MLP", "shared expert"};

struct Mlp {
  unsigned has = 0;
  const Module* example = nullptr;
};
struct Layer {
  std::array<Mlp, kinds> mlps;
  const Module* router = nullptr;
};
using Stack = std::map<int, Layer>;

struct Place {
  Kind kind = dense;
  unsigned bits = 0;
};
Place place_of(const Module& module) {
  const Kind routed = module.expert != -1 ? experts : dense;
  switch (module.role) {
    case Role::gate_proj:
      return {routed, gate};
    case Role::up_proj:
      return {routed, up};
    case Role::down_proj:
      return {routed, down};
    case Role::gate_up_proj:
      return {routed, gate | up};
    case Role::shared_gate_proj:
      return {shared, gate};
    case Role::shared_up_proj:
      return {shared, up};
    case Role::shared_down_proj:
      return {shared, down};
    case Role::shared_gate_up_proj:
      return {shared, gate | up};
    default:
      return {};
  }
}

std::string text_of(unsigned bits) {
  std::string text;
  for (const auto& [bit, name] :
       {std::pair(gate, "gate_proj"), std::pair(up, "up_proj"), std::pair(down, "down_proj")}) {
    if ((bits & bit) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

// By the path before the number: "layers", "talker.model.layers", "blk".
std::map<std::string, Stack> stacks_of(const Identified& identified) {
  std::map<std::string, Stack> stacks;
  std::set<std::string> blocks;  // with a norm, an attention, a projection
  for (const Module& module : identified.modules) {
    if (module.layer < 0 || outside_language_model(module.name)) continue;
    const std::string path = layer_path(module.name);
    const std::size_t dot = path.rfind('.');
    const std::string number = path.substr(dot + 1);
    if (dot == std::string::npos || number != std::to_string(module.layer)) continue;
    const std::string stack = path.substr(0, dot);
    if (module.role != Role::other) blocks.insert(stack);
    Layer& layer = stacks[stack][module.layer];
    if (!has_weight(module)) continue;
    if (module.role == Role::router) layer.router = &module;
    const Place place = place_of(module);
    if (place.bits == 0) continue;
    Mlp& mlp = layer.mlps[place.kind];
    mlp.has |= place.bits;
    if (mlp.example == nullptr) mlp.example = &module;
  }
  // Convolutions and activations in a row have numbers too, and only the former are stored.
  std::erase_if(stacks, [&](const auto& one) { return !blocks.contains(one.first); });
  return stacks;
}

// Token-prediction layers stand right behind the model's own and need not be like them.
void drop_draft_layers(Validation& validation, const std::string& path, Stack& stack,
                       std::optional<std::int64_t> stated) {
  if (!stated || stack.empty() || stack.begin()->first >= *stated) return;
  std::int64_t next = *stated;
  for (const auto& [number, layer] : stack) {
    if (number < next) continue;
    if (number > next) {
      validation.groups.add(Role::other,
                            {Level::warning, "layers-missing", fmt::format("{}.{}", path, number),
                             fmt::format("no layer {} before it", next),
                             fmt::format("{} layers by the config, and what predicts tokens right "
                                         "behind them",
                                         *stated)});
      break;
    }
    ++next;
  }
  std::erase_if(stack, [&](const auto& one) { return one.first >= *stated; });
}

// Layers before the first one may be in another file, unless the config counts from 0; so may those
// of a gap where nothing says that this is a whole model.
void check_gaps(Validation& validation, const std::string& path, const Stack& stack,
                const ModelHints& hints) {
  const auto stated = hints.num_layers;
  const int first = stated && stack.begin()->first < *stated ? 0 : stack.begin()->first;
  const int last = stack.rbegin()->first;
  const auto span = std::int64_t{last} - first + 1;
  std::set<std::int64_t> there = hints.empty_layers;
  for (const auto& [number, layer] : stack) there.insert(number);
  std::string missing;
  std::int64_t next = first;
  for (const std::int64_t number : there) {
    if (number < first || number > last) continue;
    if (number > next && missing.size() < 80) {
      missing += missing.empty() ? "" : ", ";
      missing +=
          number - next > 1 ? fmt::format("{} to {}", next, number - 1) : fmt::format("{}", next);
    }
    next = number + 1;
  }
  if (missing.empty()) return;
  validation.groups.add(Role::other, {stated ? Level::error : Level::warning, "layers-missing",
                                      path, "no tensors of layer " + missing,
                                      fmt::format("{} layers, {} to {}", span, first, last)});
}

unsigned all_of(const Stack& stack, Kind kind) {
  unsigned bits = 0;
  for (const auto& [number, layer] : stack) bits |= layer.mlps[kind].has;
  return bits;
}

// One MLP has up and down, and a gate where another layer's has one. `whole`: a config says that
// this is a whole model; else single matrices are but pieces of one.
void check_projections(Validation& validation, const Stack& stack, Kind kind, bool whole) {
  unsigned wanted = all_of(stack, kind);
  // Of dense layers only what another one has: their parts may have names of the family's own.
  // A dense layer of a model with experts is made as they are.
  if (kind == dense && whole && wanted != 0) wanted |= all_of(stack, experts);
  if (kind == experts && std::popcount(wanted) > 1) wanted |= whole ? up | down : up;
  for (const auto& [number, layer] : stack) {
    const Mlp& mlp = layer.mlps[kind];
    if (mlp.has == 0 || mlp.has == wanted) continue;
    if (!whole && std::has_single_bit(mlp.has)) continue;
    validation.add(*mlp.example, Level::error,
                   kind == experts ? "experts-missing" : "projection-missing",
                   fmt::format("layer {} {}", number, kind_names[kind]),
                   fmt::format("{} without {}", text_of(mlp.has), text_of(wanted & ~mlp.has)),
                   text_of(wanted) + (stack.size() > 1 ? ", as all layers of its kind" : ""));
  }
}

void check_routers(Validation& validation, const Stack& stack) {
  if (all_of(stack, experts) == 0) return;
  for (const auto& [number, layer] : stack) {
    const bool routed = layer.mlps[experts].has != 0;
    if (layer.router == nullptr || routed) continue;
    validation.groups.add(Role::up_proj,
                          {Level::error, "experts-missing", fmt::format("layer {}", number),
                           "no experts beside " + layer.router->name,
                           "experts, as the other layers with a router have"});
  }
}

}  // namespace

void validate_layers(Validation& validation) {
  const ModelHints hints = read_model_hints(validation.checkpoint);
  const std::optional<std::int64_t> stated = hints.num_layers;
  for (auto& [path, stack] : stacks_of(validation.identified)) {
    drop_draft_layers(validation, path, stack, stated);
    check_gaps(validation, path, stack, hints);
    for (const Kind kind : {experts, dense, shared}) {
      check_projections(validation, stack, kind, stated.has_value());
    }
    check_routers(validation, stack);
  }
  // Of a family that is run, all that it needs is known.
  const bool gguf = validation.checkpoint.gguf_metadata() != nullptr;
  if (!gguf && read_model_config(validation.checkpoint)) return;
  const std::set<std::string> told = validate_mixers(validation, hints);
  validate_layer_parts(validation, hints, told);
  validate_whole_model(validation, hints);
  validate_counterparts(validation, hints);
  validate_draft_parts(validation, hints);
}

}  // namespace fewbit
