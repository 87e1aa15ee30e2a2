// SPDX-License-Identifier: Apache-2.0
// Matrices of GGUF blocks: as stored, row by row, with the factor that stands beside NVFP4.
#include "canonical/gguf_matrix.hpp"

#include <fmt/format.h>

#include <cmath>

#include "canonical/gguf_blocks.hpp"
#include "canonical/storage.hpp"
#include "core/checked.hpp"
#include "core/convert.hpp"

namespace fewbit {
namespace {

// ".scale", in some files ".weight.scale": f32, one for the tensor or one an expert; absent: 1.
Result<float> read_factor(const Checkpoint& checkpoint, const Module& module,
                          std::int64_t fused_expert) {
  std::string_view suffix = "scale";
  if (module.part(suffix).empty()) suffix = "weight.scale";
  if (module.part(suffix).empty()) return 1.0F;
  FEWBIT_TRY(const Tensor tensor, part_tensor(checkpoint, module, suffix));
  const std::string name(module.part(suffix));
  if (tensor.view.dtype != DType::f32) {
    return Error{ErrorCode::corrupt,
                 fmt::format("dtype is {}, expected f32", dtype_name(tensor.view.dtype)), name};
  }
  std::vector<float> values(tensor.view.bytes.size() / sizeof(float));
  FEWBIT_TRY(convert_to_f32(DType::f32, tensor.view.bytes, values));
  const bool per_expert =
      fused_expert >= 0 && values.size() == static_cast<std::size_t>(module.experts);
  if (values.size() != 1 && !per_expert) {
    return Error{ErrorCode::corrupt,
                 fmt::format("shape is {}, expected [1]{}", shape_text(tensor.view.shape),
                             fused_expert >= 0 ? fmt::format(" or [{}]", module.experts) : ""),
                 name};
  }
  const float value = values[per_expert ? static_cast<std::size_t>(fused_expert) : 0];
  if (std::isfinite(value)) return value;
  return Error{ErrorCode::corrupt, fmt::format("factor is {}, expected a finite number", value),
               name};
}

}  // namespace

Result<GgufRows> gguf_rows(const QuantizedTensor& tensor) {
  const int id = tensor.scheme.ggml_type.value_or(-1);
  const auto types = gguf_types_of(id);
  if (types.empty() || types.front().elements == 0) {
    return Error{ErrorCode::unsupported, gguf_type_name(id) + " has no known blocks", ""};
  }
  const GgufType& type = types.front();
  if (tensor.k < 1 || tensor.k % type.elements != 0) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("rows of {} elements, but a block of {} has {}", tensor.k, type.name,
                             type.elements),
                 ""};
  }
  const auto row_bytes = checked_mul(static_cast<std::uint64_t>(tensor.k / type.elements),
                                     static_cast<std::uint64_t>(type.bytes));
  const auto bytes =
      row_bytes ? checked_mul(*row_bytes, static_cast<std::uint64_t>(tensor.n)) : std::nullopt;
  if (!bytes || tensor.codes.view.bytes.size() != *bytes) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("codes of {} bytes, expected {} for {} [{}, {}]",
                             tensor.codes.view.bytes.size(),
                             bytes ? std::to_string(*bytes) : "more than 2^64", type.name, tensor.n,
                             tensor.k),
                 ""};
  }
  return GgufRows{&type, *row_bytes};
}

Result<void> dequantize_gguf_rows(const QuantizedTensor& tensor, std::int64_t row,
                                  std::span<float> out) {
  FEWBIT_TRY(const GgufRows rows, gguf_rows(tensor));
  const auto count = out.size() / static_cast<std::size_t>(tensor.k);
  FEWBIT_TRY(decode_gguf_blocks(*rows.type,
                                tensor.codes.view.bytes.subspan(
                                    static_cast<std::size_t>(row) * rows.bytes, count * rows.bytes),
                                out));
  if (tensor.global_scale == 1.0F) return {};
  for (float& value : out) value *= tensor.global_scale;
  return {};
}

Result<QuantizedTensor> canonicalize_gguf(const Checkpoint& checkpoint, const Module& module,
                                          std::int64_t fused_expert) {
  const std::string name(module.part("weight"));
  FEWBIT_TRY(Tensor codes, part_tensor(checkpoint, module, "weight"));
  Shape& shape = codes.view.shape;
  if (fused_expert >= 0 && shape.size() == 4) shape = {module.experts, shape[2], shape[3]};
  const std::size_t rank = fused_expert < 0 ? 2 : 3;
  if (shape.size() != rank) {
    return Error{ErrorCode::corrupt,
                 fmt::format("shape is {} bytes, expected {} dimensions", shape_text(shape), rank),
                 name};
  }
  QuantizedTensor made;
  made.n = module.n;
  made.k = module.k;
  made.scheme = module.scheme;
  made.codes = fused_expert < 0 ? std::move(codes) : first_dim_slice(codes, fused_expert);
  FEWBIT_TRY(made.global_scale, read_factor(checkpoint, module, fused_expert));
  made.stored_global_scale = made.global_scale;
  if (const auto rows = gguf_rows(made); !rows) {
    return Error{rows.error().code, rows.error().what, name};
  }
  return made;
}

}  // namespace fewbit
