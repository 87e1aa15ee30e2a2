// SPDX-License-Identifier: Apache-2.0
#include "prepared/check_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "checkpoint/system_error.hpp"
#include "prepared/prepared_readers.hpp"
#include "scheme/kept_files.hpp"
#include "select/layer_problem.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

bool holds_tensors(const fs::path& file) {
  return file.extension() == ".safetensors" || file.extension() == ".gguf";
}

Result<void> check_entries(const fs::path& folder, const std::string& below,
                           const PreparedManifest& manifest) {
  std::error_code failure;
  fs::directory_iterator at(folder / below, failure);
  for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
    const std::string name = below + at->path().filename().string();
    if (name == manifest_name || (!holds_tensors(name) && !is_kept_file(name))) continue;
    if (std::ranges::find(manifest.files, name, &PreparedFile::name) != manifest.files.end()) {
      continue;
    }
    return Error{ErrorCode::corrupt,
                 fmt::format("is not among the {} files of {}, so that nothing vouches for it",
                             manifest.files.size(), manifest_name),
                 at->path().string()};
  }
  if (failure) return system_error("list", failure.value(), folder / below);
  return {};
}

}  // namespace

Result<void> check_listed(const fs::path& folder, const PreparedManifest& manifest) {
  const bool rest = std::ranges::any_of(manifest.files, [](const PreparedFile& file) {
    return holds_tensors(file.name) && !fs::path(file.name).has_parent_path();
  });
  if (!rest) {
    return Error{ErrorCode::corrupt,
                 "files: none holds the tensors that are not experts', expected model.safetensors "
                 "or model.gguf",
                 (folder / manifest_name).string()};
  }
  FEWBIT_TRY(check_entries(folder, "", manifest));
  return check_entries(folder, "prepared/", manifest);
}

Result<void> check_against_config(const MoeProblem& problem, std::int64_t experts,
                                  const ModelConfig& config, const std::string& where) {
  if (experts == config.num_experts && problem.hidden_size == config.hidden_size &&
      problem.top_k == config.router.top_k && problem.activation == config.activation) {
    return {};
  }
  return Error{
      ErrorCode::inconsistent,
      fmt::format("prepared: {} experts, hidden_size {}, top_k {}, {}; config.json: {} experts, "
                  "hidden_size {}, top_k {}, {}",
                  experts, problem.hidden_size, problem.top_k,
                  activation_name(problem.activation.kind), config.num_experts, config.hidden_size,
                  config.router.top_k, activation_name(config.activation.kind)),
      where};
}

Result<void> check_against_config(const fs::path& folder, const PreparedManifest& manifest) {
  FEWBIT_TRY(const Checkpoint rest, Checkpoint::open(folder));
  // GGUF's metadata count the experts' tensors too, which are elsewhere.
  if (rest.gguf_metadata() != nullptr) return {};
  FEWBIT_TRY(const Identified identified, identify(rest));
  const auto config = prepare_config(rest, identified, engine_of(manifest.layers.front()));
  if (!config) return {};
  for (const PreparedLayerInfo& layer : manifest.layers) {
    FEWBIT_TRY(check_against_config(
        layer.problem, layer.all_experts, *config,
        fmt::format("{}: layer {}", (folder / manifest_name).string(), layer.layer)));
  }
  return {};
}

}  // namespace fewbit
