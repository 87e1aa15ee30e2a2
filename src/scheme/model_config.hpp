// SPDX-License-Identifier: Apache-2.0
// Steps of read_model_config that stand in files of their own.
#pragma once

#include "fewbit/scheme.hpp"
#include "scheme/config_section.hpp"

namespace fewbit {

// Error unsupported for the first key whose value changes what the model computes in a way that
// ModelConfig can't say: the key, its value and what would be accepted.
Result<void> refuse_unsupported_keys(const ConfigSection& config);

// Error unsupported for the first key of another family whose value asks for something that this
// family's code does not do: the key, its value and the neutral one.
Result<void> refuse_foreign_keys(const ConfigSection& config, const ModelConfig& model);

// rope_theta, from its own key or from rope_parameters; error unsupported for scaled or partial
// rotary embeddings.
Result<double> read_rope_theta(const ConfigSection& config);

}  // namespace fewbit
