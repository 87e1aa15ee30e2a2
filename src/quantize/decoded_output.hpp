// SPDX-License-Identifier: Apache-2.0
// Where a decoded checkpoint goes: a folder of safetensors or, of a GGUF source, a GGUF file.
#pragma once

#include <filesystem>
#include <variant>
#include <vector>

#include "checkpoint/gguf_writer.hpp"
#include "fewbit/quantize.hpp"

namespace fewbit {

class DecodedOutput {
 public:
  // outputs: all tensors; those of the source that have the same name and type are stored as there.
  // Errors: unsupported (a GGUF file of another source), those of both writers.
  static Result<DecodedOutput> create(const Checkpoint& source, const std::filesystem::path& output,
                                      const std::vector<TensorSpec>& outputs,
                                      const DequantizeOptions& options);

  // As CheckpointWriter::write.
  Result<void> write(std::string_view name, std::span<const std::byte> bytes,
                     std::uint64_t offset = 0);
  // With the files beside the weights; of a GGUF file none is its own. A GGUF file is opened again
  // and compared with what was declared.
  Result<void> finish(const Checkpoint& source, const DequantizeOptions& options);
  // Empty: it is a folder.
  std::vector<std::filesystem::path> gguf_files() const;

 private:
  using Writer = std::variant<CheckpointWriter, GgufWriter>;
  DecodedOutput(std::vector<TensorSpec> outputs, Writer writer);

  std::vector<TensorSpec> outputs_;
  Writer writer_;
};

}  // namespace fewbit
