// SPDX-License-Identifier: Apache-2.0
// What tells a prepared model from a checkpoint.
#pragma once

#include <filesystem>
#include <string_view>

#include "fewbit/result.hpp"

namespace fewbit {

// The manifest; a folder that holds one is a prepared model.
inline constexpr std::string_view prepared_manifest_name = "fewbit_prepared.json";

bool holds_prepared_model(const std::filesystem::path& folder);

// Error unsupported for such a folder: its experts are in a layout, not in tensors of a checkpoint.
// `step` is what needs a checkpoint: "quantize".
Result<void> refuse_prepared(const std::filesystem::path& folder, std::string_view step);

}  // namespace fewbit
