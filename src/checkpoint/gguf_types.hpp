// SPDX-License-Identifier: Apache-2.0
// The tensor types of GGUF files: ids, names and block extents, for types that fewbit decodes and
// for those that it only sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fewbit/tensor.hpp"

namespace fewbit {

// `elements` consecutive values of a row take `bytes` bytes.
//
// Forks reused ids, so an id alone is not a type: 42 is Q2_0 with blocks of 64 (mainline) or of 128
// (PrismML's first files), 40 is NVFP4 or PrismML's first Q1_0. The first row of an id is
// mainline's.
struct GgufType {
  std::int32_t id = 0;
  std::string_view name;
  std::int32_t elements = 0;  // of one block; 0: a removed type of unknown extent
  std::int32_t bytes = 0;     // of one block
  // Of types whose blocks are single numbers that a DType describes.
  std::optional<DType> dtype = std::nullopt;
};

// All rows, ordered by id.
std::span<const GgufType> gguf_types();
// The rows of one id, mainline's first; empty for an unknown id.
std::span<const GgufType> gguf_types_of(std::int32_t id);
// nullptr when no row has both.
const GgufType* find_gguf_type(std::int32_t id, std::int64_t block_elements);
// nullptr when unknown. Names are as ggml writes them, case-sensitive: "Q4_K".
const GgufType* find_gguf_type(std::string_view name);
// "Q4_K", "type 99" for an unknown id.
std::string gguf_type_name(std::int32_t id, std::int64_t block_elements = 0);

}  // namespace fewbit
