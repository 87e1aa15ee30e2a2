// SPDX-License-Identifier: Apache-2.0
// qconfig.json: what Intel Neural Compressor writes beside its weights, {"('NAME', 'Linear')":
// {ALGORITHM: {"dtype", "bits", "group_size", …}}}, in older releases {NAME: {"weight": {…},
// "activation": {…}}}. Other tools have files of that name with other things in them.
#pragma once

#include "scheme/declared.hpp"

namespace fewbit {

// Empty where the file is not there, or says nothing of quantized weights.
Result<std::optional<Declaration>> read_qconfig_file(const Checkpoint& checkpoint);

}  // namespace fewbit
