// SPDX-License-Identifier: Apache-2.0
// ModelOpt's quantization block, in either of its places and spellings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scheme/declared.hpp"

namespace fewbit {

struct ModeloptConfig {
  std::string algorithm;             // upper case: "NVFP4", "FP8", "MIXED_PRECISION"; may be empty
  std::vector<std::string> exclude;  // exclude_modules or ignore
  // Of MIXED_PRECISION: the modules that are quantized; all others are not.
  std::optional<std::vector<std::string>> quantized_layers;
  // group_size as JSON text, where there is one that is not 16: at the top or of config_groups.
  std::string other_group_size;
  std::string where;

  bool operator==(const ModeloptConfig& other) const;
};

// Empty when the block is not ModelOpt's. Also the FP8 blocks that say moe_quant_algo NVFP4.
std::optional<ModeloptConfig> read_modelopt_config(const Declaration& declaration);

// Whether quant_algo names an algorithm whose weights are NVFP4 and nothing else.
bool is_nvfp4_algorithm(const std::string& algorithm);

// Whether the config expects this module to be quantized.
bool modelopt_expects(const ModeloptConfig& config, const std::string& module);

}  // namespace fewbit
