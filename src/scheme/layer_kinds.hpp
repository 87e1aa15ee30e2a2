// SPDX-License-Identifier: Apache-2.0
// Which layers a config makes different on purpose.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "fewbit/checkpoint.hpp"

namespace fewbit {

// Layers of different kinds may have other modules and shapes. The kind of a layer is what all
// lists of the config say of it: those with one entry a layer (layer_types, block_configs, numbers
// of heads) and those of layer numbers (mlp_only_layers), whatever they are called.
class LayerKinds {
 public:
  LayerKinds(const Checkpoint& checkpoint, std::int64_t num_layers);
  const std::string& of(std::int64_t layer) const;

 private:
  std::map<std::int64_t, std::string> kinds_;
};

}  // namespace fewbit
