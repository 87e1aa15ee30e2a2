// SPDX-License-Identifier: Apache-2.0
#include "scheme/plain_config.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "scheme/config_places.hpp"

namespace fewbit {

namespace {

// Sections deeper than this are of no model; they stay as they are.
constexpr int deepest = 16;

Json without_quantization_below(const Json& config, int depth) {
  const Json::Object* members = config.as_object();
  if (members == nullptr || depth > deepest) return config;
  Json::Object kept;
  for (const auto& [name, value] : *members) {
    if (quantization_key(name, value) != QuantizationKey::none) continue;
    kept.emplace_back(name, without_quantization_below(value, depth + 1));
  }
  return Json(std::move(kept));
}

}  // namespace

Json without_quantization(const Json& config) { return without_quantization_below(config, 0); }

bool is_config_file(const std::filesystem::path& path) {
  constexpr std::array<std::string_view, 5> names = {"config.json", "hf_quant_config.json",
                                                     "quantize_config.json", "quant_config.json",
                                                     "quantization_config.json"};
  return std::find(names.begin(), names.end(), path.filename().string()) != names.end();
}

}  // namespace fewbit
