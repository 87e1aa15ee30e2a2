// SPDX-License-Identifier: Apache-2.0
// Words of quantization under keys that no producer uses, beside weights that are all plain.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "scheme/config_places.hpp"
#include "scheme/config_section.hpp"
#include "scheme/model_json.hpp"
#include "scheme/quantization_words.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

constexpr std::size_t most_findings = 8;

bool all_plain(const Inventory& inventory) {
  return std::none_of(inventory.drafts.begin(), inventory.drafts.end(), [](const Draft& draft) {
    return draft.module.scheme.quantized() || !draft.module.unreadable.empty();
  });
}

}  // namespace

void check_config_hints(Inventory& inventory, const ModelJson& config) {
  if (config.root == nullptr || !inventory.declared.all.empty() || !all_plain(inventory)) return;
  std::size_t found = 0;
  const std::vector<ConfigPlace> places = config_places(*config.root);
  for (const ConfigPlace& place : places) {
    const Json::Object* members = place.object->as_object();
    if (members == nullptr) continue;
    for (const auto& [key, value] : *members) {
      if (!speaks_of_quantization(place.path, key, value) || ++found > most_findings) continue;
      inventory.findings.push_back(
          {Level::warning, "config-quantization-key", config.name,
           fmt::format("{}{} {}", place.path, key, value_text(value)),
           "quantized weights: all are plain, and no method is named where loaders look"});
    }
  }
  if (places.size() >= most_config_places) {
    inventory.findings.push_back({Level::warning, "config-quantization-key", config.name,
                                  fmt::format("{} objects and more", places.size()),
                                  "fewer; what the others say of quantization is not known"});
  }
  if (found > most_findings) {
    inventory.findings.push_back({Level::warning, "config-quantization-key", config.name,
                                  fmt::format("{} more such keys", found - most_findings),
                                  "none beside plain weights"});
  }
}

}  // namespace fewbit
