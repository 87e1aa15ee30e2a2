// SPDX-License-Identifier: Apache-2.0
// What a Quark config says of the weights of every module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fewbit/scheme.hpp"
#include "scheme/declared.hpp"
#include "scheme/module_rules.hpp"

namespace fewbit {

struct QuarkWeight {
  std::string dtype;    // "fp4"; empty: not stated
  std::string sharing;  // qscheme
  std::optional<std::int64_t> group_size;
  bool plain = false;   // by a rule without `weight`
  bool of_fp8 = false;  // codes of 4 bits of values that were FP8 before, which have a scale too
  std::string where;    // "config.json quantization_config global_quant_config"
};

// The settings that hold for a module, and where they stand.
struct QuarkSettings {
  const Json* config = nullptr;  // nullptr: nothing is said
  std::string where;             // "config.json quantization_config global_quant_config"
};

class QuarkConfig {
 public:
  explicit QuarkConfig(const Declaration& declaration);

  // By the first rule of layer_quant_config that names it, else by its class, else as all others.
  // Empty where rules are of classes that a file does not tell, or name only some of the parts of a
  // fused matrix.
  std::optional<QuarkSettings> settings_of(const Module& module) const;
  // What these say of the weights.
  std::optional<QuarkWeight> weight_of(const Module& module) const;
  // Whether a rule of layer_quant_config names it.
  bool names(const Module& module) const { return rules_.judge(module.name).entry != nullptr; }

 private:
  const Json* block_ = nullptr;
  std::string where_;
  ModuleRules rules_;
};

// Empty where the first config is another producer's.
std::optional<QuarkConfig> read_quark_config(const Declared& declared);

}  // namespace fewbit
