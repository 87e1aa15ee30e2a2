// SPDX-License-Identifier: Apache-2.0
// Words of quantization under keys that no producer uses, beside weights that are all plain.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
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

class Hints {
 public:
  explicit Hints(std::vector<Finding>& findings) : findings_(findings) {}

  void read(const Json& config, const std::string& file) {
    const std::vector<ConfigPlace> places = config_places(config);
    for (const ConfigPlace& place : places) read_object(place, file);
    if (places.size() >= most_config_places) {
      add(file, fmt::format("{} objects and more", places.size()),
          "fewer; what the others say of quantization is not known");
    }
  }

  void finish(const std::string& file) {
    if (found_ <= most_findings) return;
    add(file, fmt::format("{} more such keys", found_ - most_findings),
        "none beside plain weights");
  }

 private:
  void read_object(const ConfigPlace& place, const std::string& file) {
    const Json::Object* members = place.object->as_object();
    if (members == nullptr) return;
    const std::vector<std::string> weak = weak_quantization_keys(place.path, *place.object);
    for (const auto& [key, value] : *members) {
      const bool one = std::find(weak.begin(), weak.end(), key) != weak.end();
      if (!one && !speaks_of_quantization(place.path, key, value)) continue;
      if (++found_ > most_findings) continue;
      add(file, fmt::format("{}{} {}", place.path, key, value_text(value)),
          "quantized weights: all are plain, and no method is named where loaders look");
    }
  }

  void add(const std::string& file, std::string found, std::string expected) {
    findings_.push_back(
        {Level::warning, "config-quantization-key", file, std::move(found), std::move(expected)});
  }

  std::vector<Finding>& findings_;
  std::size_t found_ = 0;
};

// What a writer put into the headers of the shards, as text or as JSON in it.
Json metadata_of(const Checkpoint& checkpoint) {
  Json::Object members;
  for (const auto& [name, text] : checkpoint.metadata()) {
    auto value = Json::parse(text, name);
    members.emplace_back(name, value ? *std::move(value) : Json(text));
  }
  return Json(std::move(members));
}

}  // namespace

void check_config_hints(Inventory& inventory, const ModelJson& config) {
  if (inventory.gguf || !inventory.declared.all.empty() || !all_plain(inventory)) return;
  Hints hints(inventory.findings);
  if (config.root != nullptr) hints.read(*config.root, config.name);
  // Beside config.json other loaders read it alone; what is no JSON is another's.
  const auto params = inventory.checkpoint->json_file(params_file);
  if (config.root != nullptr && config.name != params_file && params && *params != nullptr) {
    hints.read(**params, std::string(params_file));
  }
  hints.read(metadata_of(*inventory.checkpoint), "__metadata__");
  hints.finish(config.name);
}

}  // namespace fewbit
