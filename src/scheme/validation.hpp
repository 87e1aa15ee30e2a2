// SPDX-License-Identifier: Apache-2.0
// The parts of validate(), one file a subject.
#pragma once

#include <optional>

#include "scheme/finding_groups.hpp"

namespace fewbit {

struct Validation {
  const Checkpoint& checkpoint;
  const Identified& identified;
  Depth depth;
  FindingGroups groups;

  void add(const Module& module, Level level, std::string rule, std::string where,
           std::string found, std::string expected) {
    groups.add(module.role,
               {level, std::move(rule), std::move(where), std::move(found), std::move(expected)});
  }
};

// Presence, types, shapes and values of NVFP4 codes and scales.
void validate_nvfp4(Validation& validation, const Module& module);
// Scales inside the blocks of a GGUF tensor, and the factor beside it.
void validate_gguf(Validation& validation, const Module& module);
// Each layer holds experts 0 to E-1, and how gate and up share their global scales.
void validate_experts(Validation& validation);
// Missing, unexpected and mis-shaped tensors of a model that config.json describes in full.
void validate_model(Validation& validation);
// Sizes of matrices against config.json.
void validate_config_sizes(Validation& validation);

// weight_scale_2 of a module with one matrix; empty when it is not one f32.
std::optional<float> global_scale_value(const Checkpoint& checkpoint, const Module& module);

}  // namespace fewbit
