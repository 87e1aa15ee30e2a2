// SPDX-License-Identifier: Apache-2.0
// How one group of a compressed-tensors config quantizes, spelled out or by a preset's name.
#pragma once

#include "scheme/compressed_tensors_config.hpp"

namespace fewbit {

// Missing keys have the producer's defaults. Keys that fewbit doesn't know, and values of the wrong
// kind, are appended to `odd`.
CtArgs read_ct_args(const Json& args, const std::string& where, std::vector<Finding>& odd);

// "W4A16", "NVFP4" … in any case; empty when there is no such preset.
struct CtPreset {
  CtArgs weights;
  std::optional<CtArgs> activations;
};
std::optional<CtPreset> find_ct_preset(std::string_view name);

}  // namespace fewbit
