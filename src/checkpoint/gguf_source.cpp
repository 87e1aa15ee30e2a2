// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace fewbit {
namespace {

const GgufType* type_of_numbers(DType dtype) {
  const auto types = gguf_types();
  const auto at = std::ranges::find(types, std::optional(dtype), &GgufType::dtype);
  return at != types.end() ? &*at : nullptr;
}

}  // namespace

Result<GgufTensorSpec> gguf_spec_of(const TensorInfo& info) {
  const GgufType* type = info.blocks
                             ? find_gguf_type(info.blocks->ggml_type, info.blocks->block_elements)
                             : type_of_numbers(info.dtype);
  if (type != nullptr && type->elements > 0) {
    return GgufTensorSpec{.name = info.name, .type = *type, .shape = shape_in_elements(info)};
  }
  return Error{ErrorCode::unsupported,
               fmt::format("{} has no known blocks", stored_type_name(info)), info.name};
}

Result<GgufTensorSpec> gguf_spec_of(const TensorSpec& spec) {
  const GgufType* type = type_of_numbers(spec.dtype);
  if (type != nullptr) {
    return GgufTensorSpec{.name = spec.name, .type = *type, .shape = spec.shape};
  }
  return Error{ErrorCode::unsupported,
               fmt::format("is {}, which GGUF has no type for", dtype_name(spec.dtype)), spec.name};
}

std::vector<GgufPair> gguf_pairs_of(const GgufMetadata& metadata) {
  std::vector<GgufPair> pairs;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (entry.key.starts_with("split.") || entry.key == gguf_alignment_key) continue;
    pairs.push_back(gguf_copy(std::string(entry.key), entry.value));
  }
  return pairs;
}

std::uint64_t gguf_alignment_of(const GgufMetadata& metadata) {
  const GgufValue* value = metadata.find(gguf_alignment_key);
  const auto number = value != nullptr ? value->as_int64() : std::nullopt;
  return static_cast<std::uint64_t>(number.value_or(std::int64_t{gguf_default_alignment}));
}

}  // namespace fewbit
