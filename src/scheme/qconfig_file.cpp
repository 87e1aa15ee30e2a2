// SPDX-License-Identifier: Apache-2.0
#include "scheme/qconfig_file.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "scheme/config_places.hpp"
#include "scheme/config_word.hpp"
#include "scheme/quantization_words.hpp"

namespace fewbit {
namespace {

constexpr std::string_view file_name = "qconfig.json";

constexpr std::string_view algorithms[] = {"rtn",
                                           "gptq",
                                           "awq",
                                           "teq",
                                           "hqq",
                                           "autoround",
                                           "autotune",
                                           "fp8_quant",
                                           "mx_quant",
                                           "smooth_quant",
                                           "mixed_precision",
                                           "static_quant",
                                           "dynamic_quant",
                                           "pt2e_dynamic_quant",
                                           "hybrid_gptq"};

// Settings of one layer; nullptr: nothing of the kind.
const Json* settings_of(const Json& layer) {
  const Json::Object* members = layer.as_object();
  if (members == nullptr || members->empty()) return nullptr;
  if (const Json* weight = layer.find("weight"); weight != nullptr && weight->is_object()) {
    return weight->find("dtype") != nullptr || weight->find("bits") != nullptr ? weight : nullptr;
  }
  const auto& [name, settings] = members->front();
  const bool known =
      std::find(std::begin(algorithms), std::end(algorithms), name) != std::end(algorithms);
  return known && members->size() == 1 && settings.is_object() ? &settings : nullptr;
}

// A layer that stays as it was is listed too, with "fp32".
bool says_codes(const Json& settings) {
  const Json* dtype = settings.find("dtype");
  if (dtype == nullptr) dtype = settings.find("w_dtype");
  return dtype == nullptr || word_of(dtype) == nullptr || !says_nothing(*dtype);
}

struct Layers {
  bool any = false;
  bool codes = false;
};

Layers layers_of(const Json& file) {
  Layers out;
  const Json::Object* members = file.as_object();
  if (members == nullptr) return out;
  for (const auto& [name, layer] : *members) {
    const Json* settings = settings_of(layer);
    out.any = out.any || settings != nullptr;
    out.codes = out.codes || (settings != nullptr && says_codes(*settings));
  }
  return out;
}

// Words of quantization anywhere in a file of another form.
bool speaks(const Json& file) {
  for (const ConfigPlace& place : config_places(file)) {
    const Json::Object* members = place.object->as_object();
    if (members == nullptr) continue;
    const bool any = std::any_of(members->begin(), members->end(), [&](const auto& member) {
      return quantization_key(member.first, member.second) != QuantizationKey::none ||
             speaks_of_quantization(place.path, member.first, member.second);
    });
    if (any || !weak_quantization_keys(place.path, *place.object).empty()) return true;
  }
  return false;
}

}  // namespace

Result<std::optional<Declaration>> read_qconfig_file(const Checkpoint& checkpoint) {
  FEWBIT_TRY(const auto file, checkpoint.json_file(file_name));
  if (file == nullptr || says_nothing(*file)) return std::optional<Declaration>{};
  const Layers layers = layers_of(*file);
  if (layers.any && !layers.codes) return std::optional<Declaration>{};
  if (!layers.any && !speaks(*file)) return std::optional<Declaration>{};
  Declaration out{Producer::unknown, layers.any ? "neural-compressor" : "", std::string(file_name),
                  file, file.get()};
  return std::optional(std::move(out));
}

}  // namespace fewbit
