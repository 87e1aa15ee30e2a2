// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/gguf_metadata.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit {

// As read_layer_config, from the metadata of a GGUF file. The function of the experts is that of
// the architecture, which no key states. Errors: corrupt (a key is missing or of another kind),
// unsupported (an architecture whose function fewbit doesn't know, a gating function).
Result<ModelConfig> read_gguf_layer_config(const GgufMetadata& metadata, const std::string& where);

}  // namespace fewbit
