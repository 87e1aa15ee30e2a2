// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/gguf_plan.hpp"

namespace fewbit {

// Writes a GGUF model, version 3, in one file or in parts. All tensors are declared first, so data
// can be written in any order and in pieces. Files appear under their final names only when all are
// complete: finish() renames them, the first part, which a loader opens, last.
class GgufWriter {
 public:
  // file: "folder/model.gguf"; parts are "folder/model-00001-of-00002.gguf" and so on.
  // Errors: invalid_argument (a file of that name exists; all of plan_gguf), io.
  static Result<GgufWriter> create(const std::filesystem::path& file,
                                   const std::vector<GgufPair>& pairs,
                                   const std::vector<GgufTensorSpec>& tensors,
                                   const GgufWriterOptions& options = {});
  GgufWriter(GgufWriter&&) noexcept;
  GgufWriter& operator=(GgufWriter&&) noexcept;
  ~GgufWriter();  // without finish(): removes the temporary files

  // As CheckpointWriter::write.
  Result<void> write(std::string_view name, std::span<const std::byte> bytes,
                     std::uint64_t offset = 0);
  // Error inconsistent when a declared tensor was not written in full (names it).
  Result<void> finish();
  // What finish() leaves: one file, or the parts in order, of which a loader opens the first.
  std::vector<std::filesystem::path> files() const;

 private:
  struct State;
  explicit GgufWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fewbit
