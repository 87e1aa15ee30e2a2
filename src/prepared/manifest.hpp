// SPDX-License-Identifier: Apache-2.0
// fewbit_prepared.json: what a prepared model is made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/prepared_folder.hpp"
#include "fewbit/prepare.hpp"
#include "fewbit/result.hpp"
#include "fewbit/selection.hpp"
#include "select/moe_plan.hpp"

namespace fewbit {

class Json;

inline constexpr std::string_view manifest_name = prepared_manifest_name;
inline constexpr std::int64_t manifest_version = 2;

// The routed experts of one layer, in a file of their own.
struct PreparedLayerInfo {
  int layer = 0;
  std::string file;     // "prepared/layer-00003.safetensors"
  std::string backend;  // that it was prepared for
  MoeProblem problem;   // of this slice
  MoePlan plan;
  // Which part of the layer this is; all of it without a split.
  std::int64_t first_expert = 0;
  std::int64_t all_experts = 0;
  std::int64_t first_feature = 0;  // of the intermediate ones
  std::int64_t all_features = 0;
};

struct PreparedFile {
  std::string name;  // below the model's folder
  std::uint64_t bytes = 0;
  std::string hash;        // XXH3-128, 32 hex digits, as xxh128sum prints it
  bool of_header = false;  // of what stands before its data alone: a shard of the source
};

struct PreparedManifest {
  PrepareSplit split;
  std::string source_hash;           // over the names, sizes and hashes of sources
  std::vector<PreparedFile> source;  // what it was made from; hash of headers and of small files
  std::vector<PreparedLayerInfo> layers;
  std::vector<PreparedFile> files;  // all but the manifest itself
};

std::vector<std::string> source_names(const PreparedManifest& manifest);

// "model.layers.3.mlp.experts.up.codes:cpu_f4_lane16": the tensor of a buffer.
std::string buffer_tensor_name(const PreparedLayerInfo& layer, const PlannedBuffer& buffer);

// With its own hash, over everything else as one line of JSON in the order of this function.
Json manifest_json(const PreparedManifest& manifest);
// Every field is checked: kinds, ranges, names below the folder, sums, the slice of each layer
// against the split, the hash of all of them. Errors: corrupt, `where` is the file, what =
// "layers[3].problem.top_k: expected …, found …"; unsupported for another version.
Result<PreparedManifest> parse_manifest(const Json& json, const std::string& where);
// The same, whatever its hash is: what else is wrong with fields can be tested.
Result<PreparedManifest> parse_manifest_fields(const Json& json, const std::string& where);
// Error not_found when the folder holds no manifest.
Result<PreparedManifest> read_manifest(const std::filesystem::path& folder);

}  // namespace fewbit
