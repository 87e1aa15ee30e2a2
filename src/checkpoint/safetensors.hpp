// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: u64 length, JSON object, data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "fewbit/checkpoint.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

constexpr std::uint64_t safetensors_max_header_bytes = 100'000'000;
constexpr std::string_view safetensors_metadata_key = "__metadata__";

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data; shard is 0
  std::map<std::string, std::string> metadata;
};

// Checks every rule of the format and, beyond the reference reader, duplicate names, the number of
// dimensions and products that overflow beside a zero dimension. After it every tensor lies inside
// the file, and every byte of data belongs to exactly one tensor.
//
// Errors: corrupt, what = "rule: found, expected", where = file and tensor; limit (more tensors
// than max_tensors_in_file, more than 65536 values in an entry or in the metadata); unsupported for
// GGUF.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            const std::string& where);

}  // namespace fewbit
