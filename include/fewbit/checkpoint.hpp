// SPDX-License-Identifier: Apache-2.0
// Step 1, read: a checkpoint directory or file as named, mapped tensors; and the writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// How GGUF packs a quantized tensor: `block_elements` consecutive values of a row take
// `block_bytes`, with scales of their own.
struct BlockFormat {
  std::int32_t ggml_type = 0;       // id in the file
  std::int64_t block_elements = 0;  // 0: an unknown type, its bytes are opaque
  std::int64_t block_bytes = 0;
  Shape shape;  // in elements, row-major
  bool operator==(const BlockFormat&) const = default;
};

// What a file says of one tensor. Nothing of the data was read yet.
struct TensorInfo {
  std::string name;
  DType dtype = DType::u8;
  Shape shape;
  // Of GGUF block types. Then dtype is u8 and shape counts bytes: the last dimension is the bytes
  // of a row (of an unknown type: the only dimension, all bytes).
  std::optional<BlockFormat> blocks = std::nullopt;
  std::uint64_t bytes = 0;
  std::uint64_t file_offset = 0;  // from the start of its shard
  std::int32_t shard = 0;         // index into Checkpoint::shards()
};

// "bf16", or "Q4_K" of GGUF: what the elements are stored as.
std::string stored_type_name(const TensorInfo& info);
// In elements, also where info.shape counts bytes.
const Shape& shape_in_elements(const TensorInfo& info);

// How serious a finding is: an error means the part can't be used as it is.
enum class Level { info, warning, error };
const char* level_name(Level level);

// One thing noticed in a checkpoint. Rules are listed in docs/errors.md.
struct Finding {
  Level level = Level::warning;
  std::string rule;      // "index-tensor-missing"
  std::string where;     // file, tensor or module
  std::string found;     // with numbers
  std::string expected;  // with numbers
};

class MappedFile;
class Json;
class GgufMetadata;

// An open checkpoint: headers checked against every rule of the format, data mapped, not read.
// Copies share the mappings.
class Checkpoint {
 public:
  // path: a directory (model.safetensors.index.json, else model.safetensors, else the only
  // *.safetensors, else the only GGUF model), an index file, one .safetensors file, or a GGUF file
  // (any part of a split one: all parts are opened).
  // Errors: not_found (path, shard, tensor that the index names), corrupt (header rules, with the
  // rule and both numbers), inconsistent (index and headers disagree), io.
  static Result<Checkpoint> open(const std::filesystem::path& path);

  // Sorted by name.
  std::span<const TensorInfo> tensors() const;
  // nullptr when absent.
  const TensorInfo* find(std::string_view name) const;
  // The mapped data. Error not_found when absent.
  Result<Tensor> tensor(std::string_view name) const;
  Tensor tensor(const TensorInfo& info) const;
  // Tells the system that the pages of this tensor are not needed any more (they stay readable).
  void release(const TensorInfo& info) const;

  std::span<const std::filesystem::path> shards() const;
  const std::filesystem::path& directory() const;
  std::uint64_t total_bytes() const;          // of all tensors
  std::span<const Finding> findings() const;  // of the container: stale index sizes, extra files
  // __metadata__ of all safetensors shards, or the single values of a GGUF header as text.
  const std::map<std::string, std::string>& metadata() const;
  // The typed values of a GGUF header (checkpoint/gguf_metadata.hpp); nullptr for other formats.
  const GgufMetadata* gguf_metadata() const;

  // config.json, hf_quant_config.json …: empty optional when the file does not exist.
  // Errors: io, limit (over 256 MiB), corrupt (strict JSON, duplicate keys refused).
  Result<std::shared_ptr<const Json>> json_file(
      std::string_view name) const;  // nullptr when absent

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// One tensor to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::u8;
  Shape shape;
};

struct WriterOptions {
  std::uint64_t max_shard_bytes = std::uint64_t{5} << 30;  // one shard at least one tensor
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};

// Writes a safetensors checkpoint (one file, or shards with an index) that appears under its final
// name only when complete: everything goes to a temporary folder beside `directory`, which finish()
// renames. All tensors are declared first, so data can be written in any order and in pieces.
class CheckpointWriter {
 public:
  // Errors: invalid_argument (duplicate or empty name, directory exists), limit, io.
  static Result<CheckpointWriter> create(const std::filesystem::path& directory,
                                         std::vector<TensorSpec> tensors,
                                         const WriterOptions& options = {});
  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) noexcept;
  ~CheckpointWriter();  // without finish(): removes the temporary folder

  // bytes go to [offset, offset+size) of the tensor's data. Thread-safe.
  Result<void> write(std::string_view name, std::span<const std::byte> bytes,
                     std::uint64_t offset = 0);
  // A small file beside the shards (config.json, tokenizer.json …).
  Result<void> write_file(std::string_view name, std::string_view content);
  Result<void> copy_file(const std::filesystem::path& source);
  // Error inconsistent when a declared tensor was not written in full (names it).
  Result<void> finish();

 private:
  struct State;
  explicit CheckpointWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fewbit
