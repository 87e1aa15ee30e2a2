// SPDX-License-Identifier: Apache-2.0
// Layer rules exactly as SGLang applies them to its run-time module names, for tools that must
// agree with it. fewbit's own reading of the same configs is scheme/module_rules.hpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/result.hpp"

namespace fewbit::sglang {

// Fused name -> its parts, in order.
using FusedMapping = std::vector<std::pair<std::string, std::vector<std::string>>>;

// Whether an ignored entry is a run of whole dotted components of a module path.
bool module_path_match(std::string_view ignored, std::string_view prefix);

// Whether the list leaves the module at `prefix` unquantized. A fused last component (of `fused`,
// else qkv_proj and gate_up_proj) is judged by its parts. A fused experts module is skipped as soon
// as one listed entry that contains "experts" contains its path.
// Errors: inconsistent when some but not all parts are listed (their ValueError);
// invalid_argument when the mapping names no parts (their assertion).
Result<bool> is_layer_skipped(std::string_view prefix, std::span<const std::string> ignored,
                              const FusedMapping& fused);

// The first rule, in order, whose pattern matches the start of the name decides: "-:" gives false;
// "+:" or no sign gives the whole rule when `key` is empty, else its value for `key`, else
// `fallback`. No match: `fallback`.
// Errors: of the pattern (unsupported, corrupt, limit).
Result<Json> get_dynamic_override(const Json::Object& dynamic, std::string_view name,
                                  std::optional<std::string_view> key, Json fallback);

struct GptqConfig {
  std::string method = "gptq";  // or "gptq_marlin", which also checks (bits, sym)
  std::int64_t bits = 4;
  std::int64_t group_size = 128;
  bool desc_act = false;
  bool sym = true;
  std::int64_t pack_factor = 8;  // 32 / bits, rounded down
  std::string quant_type;        // of gptq_marlin: "uint4b8", "uint8b128"
  Json::Object dynamic;
};
// The config of one module: values of other kinds than the field's are ignored.
// Errors: invalid_argument, as their ValueError; also where they would divide by zero.
Result<GptqConfig> override_config(const GptqConfig& config, std::string_view prefix);

}  // namespace fewbit::sglang
