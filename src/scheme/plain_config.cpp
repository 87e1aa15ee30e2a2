// SPDX-License-Identifier: Apache-2.0
#include "scheme/plain_config.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>

#include "scheme/config_places.hpp"

namespace fewbit {

namespace {

// Members that are a quantizer's whatever they say: its own reader may take what others can't.
bool is_quantization(std::string_view name, const Json& value) {
  return name == "quantization_config" || name == "compression_config" ||
         quantization_key(name, value) != QuantizationKey::none;
}

}  // namespace

// As deep as a parsed file can be, which has a limit.
Json without_quantization(const Json& config) {
  if (const Json::Array* items = config.as_array()) {
    Json::Array kept;
    for (const Json& item : *items) kept.push_back(without_quantization(item));
    return Json(std::move(kept));
  }
  const Json::Object* members = config.as_object();
  if (members == nullptr) return config;
  Json::Object kept;
  for (const auto& [name, value] : *members) {
    if (!is_quantization(name, value)) kept.emplace_back(name, without_quantization(value));
  }
  return Json(std::move(kept));
}

bool is_config_file(const std::filesystem::path& path) {
  constexpr std::array<std::string_view, 8> names = {
      "config.json",    "hf_quant_config.json", "quantize_config.json", "quant_config.json",
      "quant_cfg.json", "jang_config.json",     "params.json",          "qconfig.json"};
  const std::string name = path.filename().string();
  return std::find(names.begin(), names.end(), name) != names.end() ||
         std::find(std::begin(block_files), std::end(block_files), name) != std::end(block_files);
}

}  // namespace fewbit
