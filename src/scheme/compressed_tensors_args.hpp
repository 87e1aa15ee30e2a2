// SPDX-License-Identifier: Apache-2.0
// How one group of a compressed-tensors config quantizes, spelled out or by a preset's name.
#pragma once

#include "scheme/compressed_tensors_config.hpp"

namespace fewbit {

// What is odd in a block, by the rule config-value.
struct OddValues {
  bool unknown_keys = true;  // keys that fewbit doesn't know are odd; else level info
  std::vector<Finding> findings = {};

  void note(const std::string& where, std::string_view key, const Json& value,
            std::string_view expected);
  // Of a null where compressed-tensors stores none; level info.
  void note_null(const std::string& where, std::string_view key, std::string_view expected);
  // Of what means nothing to the weights; level info.
  void note_aside(const std::string& where, std::string_view key, const Json& value,
                  std::string_view expected);
};

// Missing keys have the producer's defaults, and so have odd values.
CtArgs read_ct_args(const Json& args, const std::string& where, OddValues& odd);

// One member of config_groups: settings, or a preset's name with its targets.
struct CtGroupWithTargets {
  CtGroup group;
  std::vector<std::string> targets;
};
CtGroupWithTargets read_ct_group(const std::string& name, const Json& value,
                                 const std::string& where, OddValues& odd);

// "W4A16", "NVFP4" … in any case; empty when there is no such preset.
struct CtPreset {
  CtArgs weights;
  std::optional<CtArgs> activations;
};
std::optional<CtPreset> find_ct_preset(std::string_view name);

}  // namespace fewbit
