// SPDX-License-Identifier: Apache-2.0
#include "scheme/model_hints.hpp"

#include <vector>

namespace fewbit {

ModelHints read_model_hints(const Json& config) {
  ModelHints hints;
  std::vector<const Json*> sections = {&config};
  for (const std::string_view name : {"text_config", "llm_config", "language_config"}) {
    if (const Json* section = config.find(name)) sections.push_back(section);
  }
  for (const Json* section : sections) {
    const Json* type = section->find("model_type");
    const std::string* name = type != nullptr ? type->as_string() : nullptr;
    if (name != nullptr && hints.model_type.empty()) hints.model_type = *name;
    const Json* hidden = section->find("hidden_size");
    if (hidden != nullptr && !hints.hidden_size) hints.hidden_size = hidden->as_int64();
    const Json* layers = section->find("num_hidden_layers");
    if (layers != nullptr && !hints.num_layers) hints.num_layers = layers->as_int64();
  }
  return hints;
}

}  // namespace fewbit
