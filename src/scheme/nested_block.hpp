// SPDX-License-Identifier: Apache-2.0
// Quantization blocks inside of blocks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/json.hpp"

namespace fewbit {

// A block with what stands in a block inside it (quantization_config of compressed-tensors' first
// releases, quantization of ModelOpt) in its place: the inner keys count, and outer ones that the
// inner block lacks or has as null.
struct NestedBlock {
  std::shared_ptr<const Json> merged;  // null: nothing is nested, the block is as it stands
  std::string path;                    // of the inner block: ".quantization_config"
  // What the outer block says otherwise than the inner one: "quant_method 7", "quant_method
  // \"gptq\"".
  std::vector<std::pair<std::string, std::string>> hidden = {};
};
NestedBlock nested_block(const Json& block);

}  // namespace fewbit
