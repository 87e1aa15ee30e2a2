// SPDX-License-Identifier: Apache-2.0
#include "scheme/part_of_model.hpp"

#include <algorithm>

#include "checkpoint/json.hpp"

namespace fewbit {

bool is_adapter(const Checkpoint& checkpoint) {
  const auto adapter = checkpoint.json_file("adapter_config.json");
  if (!adapter || *adapter == nullptr) return false;
  const auto tensors = checkpoint.tensors();
  const bool named = std::any_of(tensors.begin(), tensors.end(), [](const TensorInfo& tensor) {
    return tensor.name.starts_with("base_model.");
  });
  const auto model = checkpoint.json_file("config.json");
  return named || (model && *model == nullptr);
}

bool is_part_of_model(const Checkpoint& checkpoint) {
  const auto findings = checkpoint.findings();
  const bool shard = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.rule == "shard-alone";
  });
  return shard || is_adapter(checkpoint);
}

}  // namespace fewbit
