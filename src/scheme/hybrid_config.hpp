// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose experts have two tiers: some kept in 4 bits, the others in NF3.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/checkpoint.hpp"

namespace fewbit {

struct HybridConfig {
  std::string where;
  // Bits of every expert, by layer. A layer that is absent is kept as a whole.
  std::map<int, std::vector<int>> bits;
  std::string malformed;    // what is no list of 3 and 4, with its layer
  std::string kept_format;  // "mxfp4_e8m0k32"
  std::string odd_format;   // kept_format that is no name, as the file has it
  bool has_map = false;
};

// hybrid_bit_map and kept_format in config.json or hf_quant_config.json: in their quantization
// block or at the top. Empty when neither key is there. Errors: a file that can't be read.
Result<std::optional<HybridConfig>> read_hybrid_config(const Checkpoint& checkpoint);

}  // namespace fewbit
