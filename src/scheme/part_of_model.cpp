// SPDX-License-Identifier: Apache-2.0
#include "scheme/part_of_model.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "checkpoint/json.hpp"
#include "core/text_search.hpp"
#include "scheme/config_section.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

constexpr const char* adapter_file = "adapter_config.json";

// What PEFT, adapter-transformers and mlx-lm write, each in all of its adapters.
bool describes_adapter(const Json& config) {
  constexpr std::string_view names[] = {"peft_type", "base_model_name_or_path", "model_name",
                                        "fine_tune_type"};
  return config.find("lora_parameters") != nullptr ||
         std::any_of(std::begin(names), std::end(names),
                     [&](std::string_view name) { return !config.string_at(name).empty(); });
}

// Shards are cut between tensors, and some are sorted by their type, so that all scales are
// elsewhere.
bool may_be_elsewhere(const Finding& finding) {
  return finding.rule == "scale-without-weight" || finding.rule == "config-producer" ||
         finding.rule == "scale-missing" || finding.rule == "global-scale-missing" ||
         finding.rule == "input-scale-missing" || finding.rule == "zeros-missing";
}

// What diffusers and kohya's scripts write has no config at all.
bool holds_lora_only(const Checkpoint& checkpoint) {
  const auto tensors = checkpoint.tensors();
  return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return contains_any(tensor.name, {"lora_", "lora."});
  });
}

}  // namespace

bool is_adapter(const Checkpoint& checkpoint) {
  const auto adapter = checkpoint.json_file(adapter_file);
  const auto config = checkpoint.json_file("config.json");
  const bool neither = adapter && *adapter == nullptr && config && *config == nullptr;
  if (neither && holds_lora_only(checkpoint)) return true;
  if (!adapter || *adapter == nullptr || !describes_adapter(**adapter)) return false;
  const auto tensors = checkpoint.tensors();
  const bool named = std::any_of(tensors.begin(), tensors.end(), [](const TensorInfo& tensor) {
    return tensor.name.starts_with("base_model.");
  });
  return named || (config && *config == nullptr);
}

bool is_part_of_model(const Checkpoint& checkpoint) {
  return is_shard(checkpoint) || is_adapter(checkpoint);
}

bool is_shard(const Checkpoint& checkpoint) {
  const auto findings = checkpoint.findings();
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.rule == "shard-alone"; });
}

bool lacks_parts(const Module& module) {
  bool codes = false;
  bool scale = false;
  bool zeros = false;
  for (const Module::Part& part : module.parts) {
    codes = codes || is_weight_suffix(part.suffix);
    scale = scale || contains_any(part.suffix, {"scale", "absmax", "SCB"});
    zeros = zeros || contains_any(part.suffix, {"qzeros", "g_idx"});
  }
  if (!codes) return scale || zeros;
  const bool words = !module.part("qweight").empty();
  const bool known = words || !module.part("weight").empty() || !module.part("blocks").empty() ||
                     !module.part("weight_packed").empty();
  return known && (!scale || (words && module.part("qzeros").empty()));
}

void soften_findings_of_a_shard(const Checkpoint& checkpoint, std::vector<Finding>& findings) {
  if (!is_shard(checkpoint)) return;
  for (Finding& finding : findings) {
    if (finding.level == Level::info || !may_be_elsewhere(finding)) continue;
    finding.level = Level::info;
    finding.expected += ", which may be in another shard";
  }
}

void validate_adapter_config(Validation& validation) {
  const auto adapter = validation.checkpoint.json_file(adapter_file);
  if (adapter && (*adapter == nullptr || describes_adapter(**adapter))) return;
  validation.groups.add(
      Role::other,
      {Level::warning, "adapter-config", adapter ? adapter_file : adapter.error().where,
       adapter ? value_text(**adapter) : adapter.error().what,
       "an object with peft_type or base_model_name_or_path; it is not taken for an adapter's"});
}

}  // namespace fewbit
