// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/gguf_cursor.hpp"
#include "checkpoint/gguf_types.hpp"
#include "fewbit/checkpoint.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// A tensor entry as it stands in the header.
struct GgufEntry {
  std::string_view name;
  std::vector<std::int64_t> dims;  // fastest first; product below 2^63
  std::int32_t type = 0;
  std::uint64_t offset = 0;  // from the begin of the data
};

// Name, shape, bytes and block format of an entry of a type with known extent; where: for errors.
// Errors: corrupt, rules tensor-block and overflow.
Result<TensorInfo> gguf_tensor_info(const GgufEntry& entry, const GgufType& type,
                                    const std::string& where);

// Rules tensor-count, tensor-name, tensor-twice, tensor-dims, tensor-type, truncated.
Result<std::vector<GgufEntry>> read_gguf_entries(GgufCursor& cursor, std::uint64_t count);

struct GgufPlacement {
  std::uint64_t alignment = 32;
  std::uint64_t data_begin = 0;
  std::uint64_t file_bytes = 0;
};

// Gives every entry its extent, in order; see parse_gguf for ids with more than one meaning. A
// meaning that leaves no bytes behind the last tensor is preferred, then mainline's.
// `findings` gets a warning when two meanings fit and when bytes behind the last tensor belong to
// none. Errors: corrupt, rules tensor-block, overflow, offset, data-incomplete.
Result<std::vector<TensorInfo>> place_gguf_tensors(const std::vector<GgufEntry>& entries,
                                                   const GgufPlacement& placement,
                                                   const GgufCursor& cursor,
                                                   std::vector<Finding>& findings);

}  // namespace fewbit
