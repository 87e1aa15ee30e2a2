// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/mapped_file.hpp"
#include "checkpoint/system_error.hpp"
#include "core/quote.hpp"
#include "fewbit/prepare.hpp"
#include "prepared/check_folder.hpp"
#include "prepared/layer_file.hpp"
#include "prepared/manifest.hpp"
#include "prepared/prepared_readers.hpp"
#include "select/backend.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

// A model card or a text may change without harm.
bool is_read(const PreparedFile& file) {
  const fs::path extension = fs::path(file.name).extension();
  return extension == ".safetensors" || extension == ".gguf" || extension == ".json";
}

Result<void> check_file(const fs::path& folder, const PreparedFile& file) {
  const fs::path path = folder / file.name;
  std::error_code failure;
  const std::uintmax_t bytes = fs::file_size(path, failure);
  if (failure) return system_error("read the size", failure.value(), path);
  if (bytes == file.bytes) return {};
  return Error{ErrorCode::corrupt,
               fmt::format("{} bytes, {} says {}", bytes, manifest_name, file.bytes),
               path.string()};
}

// The manifest's own layer gives the header that the file has: sizes, layouts and places.
Result<void> check_layer(const PreparedLayerInfo& layer, const MappedFile& file,
                         const std::string& where) {
  if (find_backend(layer.backend) == nullptr) {
    return Error{ErrorCode::corrupt,
                 fmt::format("layer {} is prepared for the unknown backend {}", layer.layer,
                             quote(layer.backend)),
                 where};
  }
  FEWBIT_TRY(const LayerFile planned, plan_layer_file(layer));
  const auto header = std::as_bytes(std::span(planned.header));
  if (file.bytes().size() == planned.bytes &&
      std::ranges::equal(header, file.bytes().first(header.size()))) {
    return {};
  }
  return Error{
      ErrorCode::corrupt,
      fmt::format("{} bytes whose header is not the one of layer {} in {}, which gives {} "
                  "bytes, {} of them header",
                  file.bytes().size(), layer.layer, manifest_name, planned.bytes, header.size()),
      file.path().string()};
}

}  // namespace

struct PreparedModel::State {
  fs::path folder;
  PreparedManifest manifest;
  std::vector<PreparedMemory> memory;  // of each layer
};

bool is_prepared(const fs::path& folder) { return holds_prepared_model(folder); }

Result<PreparedModel> PreparedModel::open(const fs::path& folder) {
  auto state = std::make_shared<State>();
  state->folder = folder;
  FEWBIT_TRY(state->manifest, read_manifest(folder));
  FEWBIT_TRY(check_listed(folder, state->manifest));
  for (const PreparedFile& file : state->manifest.files) {
    if (is_read(file)) FEWBIT_TRY(check_file(folder, file));
  }
  for (const PreparedLayerInfo& layer : state->manifest.layers) {
    FEWBIT_TRY(const auto file, MappedFile::open(folder / layer.file));
    FEWBIT_TRY(PreparedMemory memory, map_layer(layer, file));
    FEWBIT_TRY(check_layer(layer, *file, (folder / manifest_name).string()));
    state->memory.push_back(std::move(memory));
  }
  PreparedModel model;
  model.state_ = std::move(state);
  return model;
}

const fs::path& PreparedModel::folder() const { return state_->folder; }
const PreparedManifest& PreparedModel::manifest() const { return state_->manifest; }
PrepareSplit PreparedModel::split() const { return state_->manifest.split; }

std::uint64_t PreparedModel::bytes() const {
  std::uint64_t bytes = 0;
  for (const PreparedMemory& memory : state_->memory) bytes += memory.mapped_bytes;
  return bytes;
}

std::vector<int> PreparedModel::layers() const {
  std::vector<int> numbers;
  for (const PreparedLayerInfo& layer : state_->manifest.layers) numbers.push_back(layer.layer);
  return numbers;
}

Result<PreparedModel::Layer> PreparedModel::layer(int number, DType activation_dtype,
                                                  std::int64_t max_tokens, const DeviceInfo& device,
                                                  const SelectOptions& options) const {
  const auto& layers = state_->manifest.layers;
  const auto at = std::ranges::find(layers, number, &PreparedLayerInfo::layer);
  if (at == layers.end()) {
    return Error{
        ErrorCode::not_found,
        fmt::format("no routed experts of layer {}, {} layers have some", number, layers.size()),
        (state_->folder / manifest_name).string()};
  }
  MoeProblem problem = at->problem;
  problem.activation_dtype = activation_dtype;
  problem.max_tokens = max_tokens;
  FEWBIT_TRY(PreparedReaders readers, prepared_readers(*at, problem, device, options));
  if (readers.error) return *readers.error;
  FEWBIT_TRY(const Backend* backend, selected_backend(readers.selection, problem, device));
  const PreparedMemory& memory = state_->memory[static_cast<std::size_t>(at - layers.begin())];
  FEWBIT_TRY(auto opened, backend->open_moe(problem, at->plan, memory));
  return Layer{MoeLayer(problem, std::move(opened)), std::move(readers.selection)};
}

}  // namespace fewbit
