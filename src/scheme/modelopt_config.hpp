// SPDX-License-Identifier: Apache-2.0
// ModelOpt's quantization block, in either of its places and spellings.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/declared.hpp"

namespace fewbit {

struct ModeloptConfig {
  std::string algorithm;             // upper case: "NVFP4", "FP8", "MIXED_PRECISION"; may be empty
  std::string said;                  // quant_algo as it is written, with its quotes
  bool odd = false;                  // which is no name
  std::string moe_algorithm;         // moe_quant_algo, of experts alone; upper case
  std::vector<std::string> exclude;  // exclude_modules or ignore
  // Of MIXED_PRECISION: the modules that are quantized, in order of `inner`; all others are not.
  struct Layer {
    std::string name;   // as it is written
    std::string inner;  // without the wrappers' prefixes
    std::string algorithm;
    std::string said;  // as of the whole
    std::optional<std::int64_t> group_size;
  };
  std::optional<std::vector<Layer>> quantized_layers;
  // group_size at the top and of config_groups, as JSON text.
  std::vector<std::string> group_sizes;
  bool groups_differ = false;  // config_groups are several, or name modules
  std::string where;

  bool operator==(const ModeloptConfig& other) const;
};

// Empty when the block is not ModelOpt's. Also the FP8 blocks that say moe_quant_algo NVFP4.
std::optional<ModeloptConfig> read_modelopt_config(const Declaration& declaration);

// One of ModeloptConfig::group_sizes; empty for null.
std::optional<std::int64_t> group_size_number(const std::string& text);

// The entry of quantized_layers for this module, a fused matrix that it is part of, its parts where
// all have the same algorithm, or a parent of it; nullptr when there is none.
const ModeloptConfig::Layer* modelopt_layer(const ModeloptConfig& config,
                                            const std::string& module);

// Whether this name of the table is that of a module: true for one that `exists` takes, for the
// fused matrix or a part of one, and in the other spelling (w1 for gate_proj).
bool modelopt_name_exists(std::string_view name,
                          const std::function<bool(std::string_view)>& exists);

// Upper case; empty when the config does not say.
std::string modelopt_algorithm(const ModeloptConfig& config, const std::string& module);

}  // namespace fewbit
