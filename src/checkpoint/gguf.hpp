// SPDX-License-Identifier: Apache-2.0
// The header of a GGUF file: key-value pairs, tensor entries, where the data lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/gguf_metadata.hpp"
#include "fewbit/checkpoint.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

constexpr std::string_view gguf_magic = "GGUF";
constexpr std::string_view gguf_alignment_key = "general.alignment";
constexpr std::uint64_t gguf_default_alignment = 32;
constexpr std::uint64_t gguf_max_name_bytes = 63;
constexpr std::uint32_t gguf_max_dimensions = 4;

struct GgufHeader {
  std::uint32_t version = 3;
  std::uint64_t alignment = gguf_default_alignment;
  std::uint64_t data_begin = 0;  // file offset that tensor offsets count from
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;  // in the order of the header, which is that of the data
  std::vector<Finding> findings;
};

bool is_gguf(std::span<const std::byte> file);

// Reads versions 1 to 3 and checks every rule before a size is used: after it every tensor lies in
// the file and no two overlap.
//
// Dimensions are reversed to row-major. Types of single numbers get their DType; blocks get
// TensorInfo::blocks. Ids that forks reused are resolved by arithmetic: the extents that reproduce
// all offsets. A type without known extent takes the bytes up to the next tensor, its padding too.
//
// Errors: corrupt, what = "rule: found, expected", where = file and key or tensor; unsupported
// (big-endian files, versions after 3).
Result<GgufHeader> parse_gguf(std::span<const std::byte> file, const std::string& where);

}  // namespace fewbit
