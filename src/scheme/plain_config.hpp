// SPDX-License-Identifier: Apache-2.0
// Configs of a checkpoint whose weights are no longer quantized.
#pragma once

#include <array>
#include <filesystem>
#include <string_view>

#include "checkpoint/json.hpp"

namespace fewbit {

// config.json without the blocks that describe quantized weights; all other keys unchanged.
Json without_quantization(const Json& config);

// Files that hold one quantization block, or an object around it, and name no producer by name.
inline constexpr std::array<std::string_view, 7> block_files = {
    "quantization_config.json", "quantization.json", "quantize.json",  "quant.json",
    "inc_config.json",          "gptq_config.json",  "awq_config.json"};

// Whether a file is config.json or one of the files that hold a quantization config only.
bool is_config_file(const std::filesystem::path& path);

}  // namespace fewbit
