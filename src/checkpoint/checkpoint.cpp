// SPDX-License-Identifier: Apache-2.0
#include "fewbit/checkpoint.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "checkpoint/container.hpp"
#include "checkpoint/foreign_content.hpp"
#include "checkpoint/gguf_types.hpp"
#include "checkpoint/json.hpp"
#include "checkpoint/relative_name.hpp"
#include "core/quote.hpp"

namespace fewbit {

const char* level_name(Level level) {
  switch (level) {
    case Level::info:
      return "info";
    case Level::warning:
      return "warning";
    case Level::error:
      return "error";
  }
  return "unknown";
}

std::string stored_type_name(const TensorInfo& info) {
  return info.blocks ? gguf_type_name(info.blocks->ggml_type, info.blocks->block_elements)
                     : std::string(dtype_name(info.dtype));
}

const Shape& shape_in_elements(const TensorInfo& info) {
  return info.blocks ? info.blocks->shape : info.shape;
}

namespace {

// As first read: readers of all producers ask for the same few files.
class JsonFiles {
 public:
  using Answer = Result<std::shared_ptr<const Json>>;

  template <typename Read>
  Answer find(std::string_view name, Read read) {
    const std::lock_guard lock(mutex_);
    const auto at = answers_.find(name);
    return at != answers_.end() ? at->second
                                : answers_.emplace(std::string(name), read()).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Answer, std::less<>> answers_;
};

Result<std::shared_ptr<const Json>> read_json(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  if (!file && file.error().code == ErrorCode::not_found) {
    std::error_code ignored;
    if (!std::filesystem::is_symlink(path, ignored)) return std::shared_ptr<const Json>();
    return Error{ErrorCode::not_found, "a link to nothing", path.string()};
  }
  if (!file) return file.error();
  const auto bytes = (*file)->bytes();
  FEWBIT_TRY(expect_json(bytes, path.string()));
  // Configs are written by Python.
  FEWBIT_TRY(Json json,
             Json::parse_python({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                path.string()));
  return std::make_shared<const Json>(std::move(json));
}

}  // namespace

struct Checkpoint::State {
  Container container;
  mutable JsonFiles json_files = {};

  const MappedFile& file(const TensorInfo& info) const {
    return *container.shards[static_cast<std::size_t>(info.shard)];
  }
};

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& path) {
  FEWBIT_TRY(Container container, open_container(path));
  Checkpoint checkpoint;
  const auto state = std::make_shared<State>();
  state->container = std::move(container);
  checkpoint.state_ = state;
  return checkpoint;
}

std::span<const TensorInfo> Checkpoint::tensors() const { return state_->container.tensors; }

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto& tensors = state_->container.tensors;
  const auto at = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorInfo& info, std::string_view key) { return info.name < key; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

Result<Tensor> Checkpoint::tensor(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr) {
    return Error{
        ErrorCode::not_found,
        "no tensor " + quote(name) + " among " + std::to_string(state_->container.tensors.size()),
        directory().string()};
  }
  return tensor(*info);
}

Tensor Checkpoint::tensor(const TensorInfo& info) const {
  const auto& shard = state_->container.shards[static_cast<std::size_t>(info.shard)];
  Tensor tensor;
  tensor.view.dtype = info.dtype;
  tensor.view.shape = info.shape;
  tensor.view.bytes = shard->bytes().subspan(info.file_offset, info.bytes);
  tensor.owner = shard;
  return tensor;
}

void Checkpoint::release(const TensorInfo& info) const {
  state_->file(info).release(info.file_offset, info.bytes);
}

std::span<const std::filesystem::path> Checkpoint::shards() const {
  return state_->container.paths;
}
const std::filesystem::path& Checkpoint::directory() const { return state_->container.directory; }
std::uint64_t Checkpoint::total_bytes() const { return state_->container.total_bytes; }
std::span<const Finding> Checkpoint::findings() const { return state_->container.findings; }
const std::map<std::string, std::string>& Checkpoint::metadata() const {
  return state_->container.metadata;
}
const GgufMetadata* Checkpoint::gguf_metadata() const { return state_->container.gguf.get(); }

Result<std::shared_ptr<const Json>> Checkpoint::json_file(std::string_view name) const {
  const std::filesystem::path path = directory() / name;
  if (!stays_below(name)) {
    return Error{ErrorCode::invalid_argument,
                 quote(name) + " is no file name below the checkpoint's folder",
                 directory().string()};
  }
  return state_->json_files.find(name, [&] { return read_json(path); });
}

}  // namespace fewbit
