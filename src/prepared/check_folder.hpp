// SPDX-License-Identifier: Apache-2.0
// A prepared folder against its own manifest, without the source.
#pragma once

#include <filesystem>

#include "prepared/manifest.hpp"

namespace fewbit {

// Every file there that the model is read from is one that the manifest vouches for. Errors:
// corrupt (the file; no file of the other tensors is listed), io.
Result<void> check_listed(const std::filesystem::path& folder, const PreparedManifest& manifest);

// Experts, sizes and function of every layer against the config in the folder, as far as that is
// read. Error inconsistent: both sides.
Result<void> check_against_config(const std::filesystem::path& folder,
                                  const PreparedManifest& manifest);

// One layer's problem, of `experts` experts over all ranks, against the model's config. Error
// inconsistent: both sides.
Result<void> check_against_config(const MoeProblem& problem, std::int64_t experts,
                                  const ModelConfig& config, const std::string& where);

}  // namespace fewbit
