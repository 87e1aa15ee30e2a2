// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "scheme/config_section.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Sizes that config.json states; empty where it doesn't.
struct Sizes {
  std::optional<std::int64_t> hidden;
  std::optional<std::int64_t> expert_inner;
  std::optional<std::int64_t> experts;
  std::optional<std::int64_t> vocab;
  std::optional<std::int64_t> layers;
};

std::optional<std::int64_t> size_of(const ConfigSection& config, ConfigSection::Keys keys) {
  const auto value = config.integer(keys, 1, INT64_MAX);
  return value ? *value : std::nullopt;
}

Sizes read_sizes(const Json& root) {
  const ConfigSection config(root, "config.json");
  Sizes sizes;
  // Latent experts do not have the model's width.
  if (!config.find({"moe_latent_size"})) sizes.hidden = size_of(config, {"hidden_size"});
  // A list a layer is nobody's single size.
  sizes.expert_inner = size_of(config, {"moe_intermediate_size"});
  if (!config.find({"moe_intermediate_size"})) {
    sizes.expert_inner = size_of(config, {"intermediate_size"});
  }
  sizes.experts =
      size_of(config, {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"});
  sizes.vocab = size_of(config, {"vocab_size"});
  sizes.layers = size_of(config, {"num_hidden_layers"});
  return sizes;
}

struct Expected {
  std::optional<std::int64_t> n;
  std::optional<std::int64_t> k;
};

Expected expected_size(const Sizes& sizes, const Module& module) {
  const bool expert = module.expert != -1;
  switch (module.role) {
    case Role::gate_proj:
    case Role::up_proj:
      return {expert ? sizes.expert_inner : std::nullopt, sizes.hidden};
    case Role::gate_up_proj: {
      const auto inner = expert ? sizes.expert_inner : std::nullopt;
      return {inner ? std::optional(*inner * 2) : std::nullopt, sizes.hidden};
    }
    case Role::down_proj:
      return {sizes.hidden, expert ? sizes.expert_inner : std::nullopt};
    case Role::router:
      return {sizes.experts, sizes.hidden};
    case Role::embedding:
    case Role::head:
      return {sizes.vocab, sizes.hidden};
    default:
      return {};
  }
}

std::string size_text(std::optional<std::int64_t> size) {
  return size ? fmt::format("{}", *size) : "any";
}

void validate_size(Validation& validation, const Sizes& sizes, const Module& module) {
  if (!module.unreadable.empty() || module.k == 0) return;
  const Expected expected = expected_size(sizes, module);
  const bool wrong =
      (expected.n && *expected.n != module.n) || (expected.k && *expected.k != module.k);
  if (wrong) {
    validation.add(
        module, Level::error, "config-size", module.name,
        fmt::format("[{}, {}]", module.n, module.k),
        fmt::format("[{}, {}] by config.json", size_text(expected.n), size_text(expected.k)));
  }
  if (module.experts > 0 && sizes.experts && module.experts != *sizes.experts) {
    validation.add(module, Level::error, "config-experts", module.name,
                   fmt::format("{} experts", module.experts),
                   fmt::format("{} by config.json", *sizes.experts));
  }
}

}  // namespace

void validate_config_sizes(Validation& validation) {
  const auto config = validation.checkpoint.json_file("config.json");
  if (!config || *config == nullptr) return;
  const Sizes sizes = read_sizes(**config);
  std::int64_t layers = 0;
  std::map<int, std::pair<std::int64_t, const Module*>> experts;  // highest id + 1, by layer
  for (const Module& module : validation.identified.modules) {
    validate_size(validation, sizes, module);
    layers = std::max<std::int64_t>(layers, module.layer + std::int64_t{1});
    if (module.layer < 0 || module.expert < 0) continue;
    auto& [count, example] = experts[module.layer];
    if (module.expert >= count) example = &module;
    count = std::max<std::int64_t>(count, module.expert + std::int64_t{1});
  }
  for (const auto& [layer, found] : experts) {
    if (!sizes.experts || found.first <= *sizes.experts) continue;
    validation.add(*found.second, Level::error, "config-experts", found.second->name,
                   fmt::format("{} experts in layer {}", found.first, layer),
                   fmt::format("{} by config.json", *sizes.experts));
  }
  // More layers are token-prediction heads; fewer can't be.
  if (sizes.layers && layers > 0 && layers < *sizes.layers) {
    validation.groups.add(Role::other, {Level::error, "layers-missing", "config.json",
                                        fmt::format("tensors of layers 0 to {}", layers - 1),
                                        fmt::format("{} layers by config.json", *sizes.layers)});
  }
}

}  // namespace fewbit
