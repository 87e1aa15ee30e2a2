// SPDX-License-Identifier: Apache-2.0
#include "prepared/output_manifest.hpp"

#include <utility>

#include "checkpoint/json.hpp"
#include "prepared/content_hash.hpp"
#include "scheme/plain_config.hpp"

namespace fewbit {

Result<std::vector<SmallFile>> small_files(const Checkpoint& source, const PreparePlan& plan) {
  std::vector<SmallFile> files;
  for (const SourceFile& file : plan.sources) {
    if (file.weights) continue;
    FEWBIT_TRY(auto mapped, MappedFile::open(file.path));
    if (hash_bytes(mapped->bytes()) != file.hash) {
      return Error{ErrorCode::inconsistent, "has changed while the model was prepared",
                   file.path.string()};
    }
    if (plan.plain_rest && is_config_file(file.path)) continue;
    files.push_back({.name = file.name, .mapped = std::move(mapped), .text = {}});
  }
  if (!plan.plain_rest) return files;
  FEWBIT_TRY(const auto config, source.json_file("config.json"));
  files.push_back({.name = "config.json",
                   .mapped = nullptr,
                   .text = without_quantization(*config).dump(2) + "\n"});
  return files;
}

PreparedManifest output_manifest(const PreparePlan& plan, const PrepareSplit& split,
                                 const std::vector<std::string>& hashes,
                                 const std::vector<SmallFile>& small) {
  PreparedManifest manifest;
  manifest.split = split;
  manifest.source_hash = source_hash(plan.sources);
  for (const SourceFile& file : plan.sources) {
    manifest.source.push_back(
        {.name = file.name, .bytes = file.bytes, .hash = file.hash, .of_header = file.weights});
  }
  for (const PlannedLayer& layer : plan.layers) manifest.layers.push_back(layer.info);
  for (std::size_t i = 0; i < plan.files(); ++i) {
    manifest.files.push_back(
        {.name = plan.file_name(i), .bytes = plan.file_bytes(i), .hash = hashes[i]});
  }
  for (const SmallFile& file : small) {
    manifest.files.push_back(
        {.name = file.name, .bytes = file.bytes().size(), .hash = hash_bytes(file.bytes())});
  }
  return manifest;
}

}  // namespace fewbit
