// SPDX-License-Identifier: Apache-2.0
#include "scheme/plain_config.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace fewbit {

Json without_quantization(const Json& config) {
  Json::Object kept;
  if (const Json::Object* members = config.as_object()) {
    for (const Json::Member& member : *members) {
      if (member.first != "quantization_config" && member.first != "compression_config") {
        kept.push_back(member);
      }
    }
  }
  return Json(std::move(kept));
}

bool is_config_file(const std::filesystem::path& path) {
  constexpr std::array<std::string_view, 4> names = {"config.json", "hf_quant_config.json",
                                                     "quantize_config.json", "quant_config.json"};
  return std::find(names.begin(), names.end(), path.filename().string()) != names.end();
}

}  // namespace fewbit
