// SPDX-License-Identifier: Apache-2.0
// A folder with any files is opened, identified, validated and decoded; aborts where a result is
// not what its users rely on.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "checkpoint/scratch_folder.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {

inline void remove_files(const ScratchFolder& folder) {
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    std::filesystem::remove(file.path());
  }
}

// What is decoded must decode whole.
inline void check_matrix(const Checkpoint& checkpoint, const Module& module, std::int64_t expert) {
  const auto matrix = canonicalize(checkpoint, module, expert);
  if (!matrix) return;
  if (!check_quantized(*matrix)) std::abort();
  if (matrix->n == 0) return;
  std::vector<float> row(static_cast<std::size_t>(matrix->k));
  if (!dequantize_rows(*matrix, 0, row)) std::abort();
  if (!dequantize_rows(*matrix, matrix->n - 1, row)) std::abort();
}

// Codes never pass for plain values. Masks are nobody's codes: plain BOOL tensors, and bytes by
// name. GGUF has integers of its own, which are no codes either.
inline void check_plain(const Checkpoint& checkpoint, const Module& module) {
  if (module.scheme.quantized() || !module.unreadable.empty()) return;
  if (checkpoint.gguf_metadata() != nullptr) return;
  if (module.name.ends_with("mask") || module.name.ends_with("masked_bias")) return;
  const TensorInfo* weight = checkpoint.find(module.part("weight"));
  if (weight != nullptr && weight->dtype != DType::boolean && weight->shape.size() >= 2 &&
      dtype_bits(weight->dtype) < 16) {
    std::abort();
  }
}

inline void check_model(const std::filesystem::path& folder) {
  const auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint) return;
  (void)read_model_config(*checkpoint);
  const auto identified = identify(*checkpoint);
  if (!identified) return;
  (void)validate(*checkpoint, *identified);
  for (const Module& module : identified->modules) {
    check_plain(*checkpoint, module);
    check_matrix(*checkpoint, module, module.experts > 0 ? module.experts - 1 : -1);
  }
  for (int layer = 0; layer < 3; ++layer) {
    (void)gather_moe(*checkpoint, *identified, layer);
  }
}

}  // namespace fewbit
