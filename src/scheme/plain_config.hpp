// SPDX-License-Identifier: Apache-2.0
// Configs of a checkpoint whose weights are no longer quantized.
#pragma once

#include <filesystem>

#include "checkpoint/json.hpp"

namespace fewbit {

// config.json without the blocks that describe quantized weights; all other keys unchanged.
Json without_quantization(const Json& config);

// Whether a file is config.json or one of the files that hold a quantization config only.
bool is_config_file(const std::filesystem::path& path);

}  // namespace fewbit
