// SPDX-License-Identifier: Apache-2.0
// Where each tensor of a GGUF model to be written goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/gguf.hpp"
#include "checkpoint/gguf_pair.hpp"
#include "checkpoint/gguf_types.hpp"
#include "fewbit/checkpoint.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

struct GgufTensorSpec {
  std::string name;
  GgufType type;
  Shape shape;  // in elements, row-major
};

struct GgufWriterOptions {
  std::uint64_t alignment = gguf_default_alignment;
  // Bytes of tensor data in one part, which holds at least one tensor. One file whatever the size
  // when empty.
  std::optional<std::uint64_t> max_part_bytes = std::nullopt;
};

struct PlannedPart {
  std::string file;    // "model-00002-of-00003.gguf"
  std::string header;  // all bytes before the data
  std::uint64_t file_bytes = 0;
};

struct GgufPlan {
  std::vector<TensorInfo> tensors;  // as declared; file_offset and shard are set
  std::vector<PlannedPart> parts;
};

// file_name: "model.gguf", which becomes the prefix of the parts' names when there are several.
// Pairs stand in the first part, tensors in the order they are declared; split.* pairs and
// general.alignment (where it isn't the default) are added.
//
// Errors: invalid_argument (file name, key or tensor name: empty, twice, too long, reserved or no
// UTF-8; shape; alignment; rows that are no whole blocks), limit (sizes; more than 65535 parts).
Result<GgufPlan> plan_gguf(const std::string& file_name, const std::vector<GgufPair>& pairs,
                           const std::vector<GgufTensorSpec>& tensors,
                           const GgufWriterOptions& options);

}  // namespace fewbit
