// SPDX-License-Identifier: Apache-2.0
// Layer rules exactly as SGLang applies them to its run-time module names, for tools that must
// agree with it. fewbit itself reads the same configs in its own way (docs/checks.md); where the
// two differ, docs/differences.md says how.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fewbit/result.hpp"

namespace fewbit::sglang {

// Fused name -> its parts, in order: {"qkv_proj", {"q_proj", "k_proj", "v_proj"}}.
using FusedMapping = std::vector<std::pair<std::string, std::vector<std::string>>>;

// Whether an ignored entry is a run of whole dotted components of a module path: "mlp.gate" of
// "model.layers.0.mlp.gate", not of "model.layers.0.mlp.gate_proj".
bool module_path_match(std::string_view ignored, std::string_view prefix);

// Whether the list leaves the module at `prefix` unquantized. A fused last component (of `fused`,
// else qkv_proj and gate_up_proj) is judged by its parts. A fused experts module is skipped as soon
// as one listed entry that contains "experts" contains its path.
// Errors: inconsistent when some but not all parts are listed (their ValueError);
// invalid_argument when the mapping names no parts (their assertion).
Result<bool> is_layer_skipped(std::string_view prefix, std::span<const std::string> ignored,
                              const FusedMapping& fused = {});

// GPTQModel's `dynamic`, a JSON object of rules in order. The first whose pattern matches the start
// of the name decides: "-:" gives false; "+:" or no sign gives the whole rule when there is no
// `key`, else its value for `key`, else `fallback`. No match: `fallback`. Values are JSON texts.
// Errors: corrupt (no JSON), invalid_argument (`dynamic` is no object), of a pattern (unsupported,
// corrupt, limit).
Result<std::string> get_dynamic_override(std::string_view dynamic, std::string_view name,
                                         std::optional<std::string_view> key,
                                         std::string_view fallback);

struct GptqConfig {
  std::string method = "gptq";  // or "gptq_marlin", which also checks (bits, sym)
  std::int64_t bits = 4;
  std::int64_t group_size = 128;
  bool desc_act = false;
  bool sym = true;
  std::int64_t pack_factor = 8;  // 32 / bits, rounded down
  std::string quant_type;        // of gptq_marlin: "uint4b8", "uint8b128"
  std::string dynamic = "{}";    // JSON, as above
};
// The config of one module: values of other kinds than the field's are ignored.
// Errors: invalid_argument, as their ValueError; also where they would divide by zero; those of
// get_dynamic_override.
Result<GptqConfig> override_config(const GptqConfig& config, std::string_view prefix);

}  // namespace fewbit::sglang
