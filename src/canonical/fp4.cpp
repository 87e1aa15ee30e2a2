// SPDX-License-Identifier: Apache-2.0
// E2M1 codes, two a byte along k, with group scales: MXFP4 and NVFP4 in all their orders.
#include "scheme/fp4.hpp"

#include <fmt/format.h>

#include "canonical/parts.hpp"
#include "canonical/storage.hpp"
#include "canonical/transpose.hpp"
#include "core/checked.hpp"

namespace fewbit {
namespace {

Result<void> check_shape(const Tensor& tensor, const Shape& expected, const Module& module,
                         const std::string& name) {
  if (tensor.view.shape == expected) return {};
  return Error{ErrorCode::corrupt,
               fmt::format("shape is {}, expected {} for a matrix [{}, {}]",
                           shape_text(tensor.view.shape), shape_text(expected), module.n, module.k),
               name};
}

// One matrix of a part as [n, columns].
Result<Tensor> read_matrix(const Checkpoint& checkpoint, const Module& module,
                           std::string_view suffix, std::int64_t columns,
                           std::int64_t fused_expert) {
  FEWBIT_TRY(Tensor tensor, part_tensor(checkpoint, module, suffix));
  const std::string name(module.part(suffix));
  if (module.scheme.producer == Producer::mlx) words_as_bytes(tensor, DType::u8);
  Shape& shape = tensor.view.shape;
  if (suffix == "blocks" && shape.size() > 1) {
    const auto joined = checked_mul(shape[shape.size() - 2], shape.back());
    shape.pop_back();
    shape.back() = joined.value_or(0);
  }
  FEWBIT_TRY(check_part_rank(tensor, fused_expert < 0 ? 2 : 3, name));
  if (fused_expert >= 0) {
    if (shape[0] != module.experts) {
      return Error{ErrorCode::corrupt,
                   fmt::format("holds {} experts, expected {}", shape[0], module.experts), name};
    }
    tensor = first_dim_slice(tensor, fused_expert);
  }
  const Shape rows = {module.n, columns};
  if (!module.transposed) {
    FEWBIT_TRY(check_shape(tensor, rows, module, name));
    return tensor;
  }
  FEWBIT_TRY(check_shape(tensor, {columns, module.n}, module, name));
  return transposed_copy(tensor);
}

Result<void> read_global(const Checkpoint& checkpoint, const Module& module, const Fp4Parts& parts,
                         std::int64_t fused_expert, QuantizedTensor& made) {
  if (parts.global.empty()) {
    return Error{ErrorCode::not_found,
                 fmt::format("tensor {}.weight_scale_2 is missing", module.name), module.name};
  }
  FEWBIT_TRY(const float stored, read_factor(checkpoint, module, parts.global, fused_expert));
  made.stored_global_scale = stored;
  made.global_scale = stored;
  if (!parts.divisor) return {};
  if (stored == 0.0F) {
    return Error{ErrorCode::corrupt, "divisor is 0, expected a finite number above zero",
                 std::string(module.part(parts.global))};
  }
  made.global_scale = 1.0F / stored;
  return {};
}

}  // namespace

Result<QuantizedTensor> canonicalize_fp4(const Checkpoint& checkpoint, const Module& module,
                                         std::int64_t fused_expert) {
  const Fp4Parts parts = fp4_parts(module);
  if (parts.codes.empty() || parts.scale.empty() || !module.scheme.scale) {
    return Error{ErrorCode::not_found, "codes or scale are missing", module.name};
  }
  const ScaleSpec& scale = *module.scheme.scale;
  QuantizedTensor made;
  made.n = module.n;
  made.k = module.k;
  made.scheme = module.scheme;
  made.scheme.packing = Packing::nibbles_k;
  FEWBIT_TRY(made.codes, read_matrix(checkpoint, module, parts.codes, module.k / 2, fused_expert));
  if (made.codes.view.dtype == DType::i8) made.codes.view.dtype = DType::u8;
  FEWBIT_TRY(check_part_dtype(made.codes, DType::u8, module.part(parts.codes)));
  FEWBIT_TRY(made.scales, read_matrix(checkpoint, module, parts.scale,
                                      ceil_div(module.k, scale.granularity.cols), fused_expert));
  // Bytes stand for the types that safetensors did not always have.
  const bool any_byte = scale.dtype != DType::f8_e4m3 || module.scheme.producer == Producer::mlx;
  if (made.scales.view.dtype == DType::u8 && any_byte) {
    made.scales.view.dtype = scale.dtype;
  }
  FEWBIT_TRY(check_part_dtype(made.scales, scale.dtype, module.part(parts.scale)));
  if (scale.has_global) {
    FEWBIT_TRY(read_global(checkpoint, module, parts, fused_expert, made));
  }
  if (const auto checked = check_quantized(made); !checked) {
    return Error{checked.error().code, checked.error().what, module.name};
  }
  return made;
}

}  // namespace fewbit
