// SPDX-License-Identifier: Apache-2.0
#include "prepared/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "checkpoint/json.hpp"
#include "checkpoint/mapped_file.hpp"
#include "core/quote.hpp"
#include "prepared/content_hash.hpp"
#include "prepared/json_fields.hpp"
#include "prepared/problem_json.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t most_ranks = 65536;
constexpr std::int64_t most_size = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view format_name = "fewbit-prepared";

constexpr const char* content_hash = "xxh3_128";
constexpr const char* header_hash = "header_xxh3_128";

Json files_json(const std::vector<PreparedFile>& files) {
  Json::Array out;
  for (const PreparedFile& file : files) {
    Json entry;
    entry.set("name", file.name);
    entry.set("bytes", file.bytes);
    entry.set(file.of_header ? header_hash : content_hash, file.hash);
    out.push_back(std::move(entry));
  }
  return Json(std::move(out));
}

enum class Hashed { contents, headers };  // headers of some files

Result<std::vector<PreparedFile>> parse_files(const JsonFields& fields, std::string_view key,
                                              Hashed hashed) {
  FEWBIT_TRY(const std::vector<JsonFields> entries, fields.objects(key));
  std::vector<PreparedFile> files;
  std::set<std::string> names;
  for (const JsonFields& entry : entries) {
    PreparedFile file;
    FEWBIT_TRY(file.name, entry.file_name("name"));
    FEWBIT_TRY(const std::int64_t bytes,
               entry.integer("bytes", 0, std::numeric_limits<std::int64_t>::max()));
    file.bytes = static_cast<std::uint64_t>(bytes);
    // Of shards, models of before have the header's hash under the name of a whole file's.
    file.of_header = hashed == Hashed::headers && entry.text(header_hash).has_value();
    const char* hash = file.of_header ? header_hash : content_hash;
    FEWBIT_TRY(file.hash, entry.text(hash));
    const bool hex = file.hash.size() == 32 &&
                     file.hash.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!hex) return entry.bad(hash, "expected 32 hex digits, found " + quote(file.hash));
    if (!names.insert(file.name).second) return entry.bad("name", quote(file.name) + " twice");
    files.push_back(std::move(file));
  }
  return files;
}

Json split_json(const PrepareSplit& split) {
  Json out;
  out.set("tensor_ranks", split.tensor_ranks);
  out.set("expert_ranks", split.expert_ranks);
  out.set("rank", split.rank);
  return out;
}

Result<PrepareSplit> parse_split(const JsonFields& fields) {
  FEWBIT_TRY(const std::int64_t tensor, fields.integer("tensor_ranks", 1, most_ranks));
  FEWBIT_TRY(const std::int64_t expert, fields.integer("expert_ranks", 1, most_ranks));
  FEWBIT_TRY(const std::int64_t rank, fields.integer("rank", 0, tensor * expert - 1));
  return PrepareSplit{.tensor_ranks = static_cast<int>(tensor),
                      .expert_ranks = static_cast<int>(expert),
                      .rank = static_cast<int>(rank)};
}

Json layer_json(const PreparedLayerInfo& layer) {
  Json out;
  out.set("layer", layer.layer);
  out.set("file", layer.file);
  out.set("backend", layer.backend);
  out.set("problem", problem_json(layer.problem));
  out.set("buffers", plan_json(layer.plan));
  out.set("first_expert", layer.first_expert);
  out.set("all_experts", layer.all_experts);
  out.set("first_feature", layer.first_feature);
  out.set("all_features", layer.all_features);
  return out;
}

Result<PreparedLayerInfo> parse_layer(const JsonFields& fields) {
  PreparedLayerInfo layer;
  FEWBIT_TRY(const std::int64_t number, fields.integer("layer", 0, most_size));
  layer.layer = static_cast<int>(number);
  FEWBIT_TRY(layer.file, fields.file_name("file"));
  FEWBIT_TRY(layer.backend, fields.text("backend"));
  FEWBIT_TRY(const JsonFields problem, fields.object("problem"));
  FEWBIT_TRY(layer.problem, parse_problem(problem));
  FEWBIT_TRY(layer.plan, parse_plan(fields, layer.problem.num_experts));
  FEWBIT_TRY(layer.all_experts, fields.integer("all_experts", layer.problem.num_experts, 65536));
  FEWBIT_TRY(layer.first_expert,
             fields.integer("first_expert", 0, layer.all_experts - layer.problem.num_experts));
  FEWBIT_TRY(layer.all_features,
             fields.integer("all_features", layer.problem.intermediate_size, most_size));
  FEWBIT_TRY(layer.first_feature, fields.integer("first_feature", 0, layer.all_features - 1));
  return layer;
}

// A part of `all` that begins at `first`, the rank's of so many.
Result<void> check_share(const PreparedLayerInfo& layer, const char* what, std::int64_t first,
                         std::int64_t size, std::int64_t all, int rank, int ranks,
                         const std::string& where) {
  const bool begins = (rank == 0) == (first == 0);
  const bool ends = (rank == ranks - 1) == (first + size == all);
  if (begins && ends) return {};
  return Error{ErrorCode::corrupt,
               fmt::format("layers: {} {} to {} of {} of layer {} are not those of rank {} of {}",
                           what, first, first + size - 1, all, layer.layer, rank, ranks),
               where};
}

Result<void> check_slice(const PreparedLayerInfo& layer, const PrepareSplit& split,
                         const std::string& where) {
  FEWBIT_TRY(check_share(layer, "experts", layer.first_expert, layer.problem.num_experts,
                         layer.all_experts, split.rank / split.tensor_ranks, split.expert_ranks,
                         where));
  // Shares of one size for all ranks may reach beyond the last feature, padded.
  const int rank = split.rank % split.tensor_ranks;
  const std::int64_t left = layer.all_features - layer.first_feature;
  const std::int64_t each = layer.problem.intermediate_size;
  const std::int64_t size = layer.first_feature == rank * each ? std::min(each, left) : each;
  return check_share(layer, "features", layer.first_feature, size, layer.all_features, rank,
                     split.tensor_ranks, where);
}

Result<void> check_layers(const PreparedManifest& manifest, const std::string& where) {
  if (manifest.layers.empty()) {
    return Error{ErrorCode::corrupt, "layers: none, expected at least one", where};
  }
  int previous = -1;
  for (const PreparedLayerInfo& layer : manifest.layers) {
    if (layer.layer <= previous) {
      return Error{ErrorCode::corrupt,
                   fmt::format("layers: layer {} behind layer {}, expected ascending numbers",
                               layer.layer, previous),
                   where};
    }
    previous = layer.layer;
    const bool listed = std::ranges::any_of(
        manifest.files, [&](const PreparedFile& file) { return file.name == layer.file; });
    if (!listed) {
      return Error{ErrorCode::corrupt,
                   fmt::format("file {} of layer {} is not among the {} files", quote(layer.file),
                               layer.layer, manifest.files.size()),
                   where};
    }
    FEWBIT_TRY(check_slice(layer, manifest.split, where));
  }
  return {};
}

// All but the hash of it.
Json content_json(const PreparedManifest& manifest) {
  Json::Array layers;
  for (const PreparedLayerInfo& layer : manifest.layers) layers.push_back(layer_json(layer));
  Json source;
  source.set("xxh3_128", manifest.source_hash);
  source.set("files", files_json(manifest.source));
  Json out;
  out.set("format", format_name);
  out.set("version", manifest_version);
  out.set("split", split_json(manifest.split));
  out.set("source", std::move(source));
  out.set("layers", Json(std::move(layers)));
  out.set("files", files_json(manifest.files));
  return out;
}

std::string hash_of(const Json& content) {
  const std::string text = content.dump();
  return hash_bytes(std::as_bytes(std::span(text)));
}

}  // namespace

std::vector<std::string> source_names(const PreparedManifest& manifest) {
  std::vector<std::string> names;
  for (const PreparedFile& file : manifest.source) names.push_back(file.name);
  return names;
}

std::string buffer_tensor_name(const PreparedLayerInfo& layer, const PlannedBuffer& buffer) {
  return fmt::format("{}.{}:{}", layer.problem.where, buffer.name, buffer.layout);
}

Json manifest_json(const PreparedManifest& manifest) {
  Json out = content_json(manifest);
  out.set("xxh3_128", hash_of(out));
  return out;
}

Result<PreparedManifest> parse_manifest_fields(const Json& json, const std::string& where) {
  const JsonFields fields(json, "", where);
  FEWBIT_TRY(const std::string format, fields.text("format"));
  if (format != format_name) {
    return fields.bad("format",
                      fmt::format("expected {}, found {}", quote(format_name), quote(format)));
  }
  FEWBIT_TRY(const std::int64_t version, fields.integer("version", 0, most_size));
  if (version != manifest_version) {
    return Error{ErrorCode::unsupported,
                 fmt::format("version {}, this fewbit reads version {}: prepare the model anew",
                             version, manifest_version),
                 where};
  }
  PreparedManifest manifest;
  FEWBIT_TRY(const JsonFields split, fields.object("split"));
  FEWBIT_TRY(manifest.split, parse_split(split));
  FEWBIT_TRY(const JsonFields source, fields.object("source"));
  FEWBIT_TRY(manifest.source_hash, source.text("xxh3_128"));
  FEWBIT_TRY(manifest.source, parse_files(source, "files", Hashed::headers));
  FEWBIT_TRY(const std::vector<JsonFields> layers, fields.objects("layers"));
  for (const JsonFields& each : layers) {
    FEWBIT_TRY(PreparedLayerInfo layer, parse_layer(each));
    manifest.layers.push_back(std::move(layer));
  }
  FEWBIT_TRY(manifest.files, parse_files(fields, "files", Hashed::contents));
  FEWBIT_TRY(check_layers(manifest, where));
  return manifest;
}

Result<PreparedManifest> parse_manifest(const Json& json, const std::string& where) {
  FEWBIT_TRY(PreparedManifest manifest, parse_manifest_fields(json, where));
  const JsonFields fields(json, "", where);
  FEWBIT_TRY(const std::string stated, fields.text("xxh3_128"));
  const std::string hash = hash_of(content_json(manifest));
  if (stated != hash) {
    return fields.bad("xxh3_128", fmt::format("{}, but the fields have {}: one was changed",
                                              quote(stated), quote(hash)));
  }
  return manifest;
}

Result<PreparedManifest> read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / manifest_name;
  FEWBIT_TRY(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  FEWBIT_TRY(
      const Json json,
      Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string()));
  return parse_manifest(json, path.string());
}

}  // namespace fewbit
