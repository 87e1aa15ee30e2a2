// SPDX-License-Identifier: Apache-2.0
#include "scheme/mlx_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "checkpoint/json_text.hpp"
#include "core/quote.hpp"
#include "scheme/config_word.hpp"

namespace fewbit {
namespace {

constexpr MlxMode modes[] = {
    {"affine", 4, 64}, {"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}};

// Of the block itself; all others are names.
constexpr std::array<std::string_view, 5> own_keys = {"bits", "group_size", "mode", "quant_method",
                                                      "linear_class"};

// The number; `usual` where it is absent, empty where it is none.
std::optional<std::int64_t> number_or(const Json& block, std::string_view key, std::int64_t usual) {
  const Json* value = block.find(key);
  if (value == nullptr || value->is_null()) return usual;
  const auto number = value->as_int64();
  return number && *number > 0 ? number : std::nullopt;
}

MlxSettings settings_of(const Json& block, std::string where) {
  MlxSettings out;
  out.where = std::move(where);
  const Json* mode = block.find("mode");
  if (const std::string* name = word_of(mode)) out.mode = *name;
  if (is_odd_word(mode)) out.mode = value_text(*mode);
  const MlxMode* known = find_mlx_mode(out.mode);
  const MlxMode& usual = known != nullptr ? *known : modes[0];
  out.bits = number_or(block, "bits", usual.bits);
  out.group_size = number_or(block, "group_size", usual.group_size);
  return out;
}

}  // namespace

const MlxMode* find_mlx_mode(std::string_view name) {
  const auto* const found = std::find_if(std::begin(modes), std::end(modes),
                                         [&](const MlxMode& mode) { return mode.name == name; });
  return found != std::end(modes) ? found : nullptr;
}

std::optional<MlxConfig> MlxConfig::read(const Declared& declared) {
  for (const Declaration& one : declared.all) {
    if (one.producer != Producer::mlx || !one.block->is_object()) continue;
    MlxConfig config;
    config.block_ = one.block;
    config.where_ = one.where;
    for (const auto& [name, value] : *one.block->as_object()) {
      const bool own = std::find(own_keys.begin(), own_keys.end(), name) != own_keys.end();
      if (!own) config.entries_.emplace(name, &value);
    }
    return config;
  }
  return std::nullopt;
}

MlxSettings MlxConfig::of(const std::string& module) const {
  const auto entry = entries_.find(module);
  if (entry == entries_.end() || !entry->second->is_object()) return settings_of(*block_, where_);
  return settings_of(*entry->second, fmt::format("{} {}", where_, quote(module)));
}

}  // namespace fewbit
