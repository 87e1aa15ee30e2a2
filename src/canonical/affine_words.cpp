// SPDX-License-Identifier: Apache-2.0
// MLX: u32 words along the rows, lowest bits first, are rows of the canonical form as they stand;
// the offset a group is stored in bf16 too.
#include <fmt/format.h>

#include "canonical/parts.hpp"
#include "canonical/storage.hpp"
#include "core/checked.hpp"
#include "core/convert.hpp"

namespace fewbit {
namespace {

// [n, columns] of one matrix.
Result<Tensor> read_matrix(const Checkpoint& checkpoint, const Module& module,
                           std::string_view suffix, std::int64_t columns,
                           std::int64_t fused_expert) {
  FEWBIT_TRY(Tensor tensor, part_tensor(checkpoint, module, suffix));
  const std::string name(module.part(suffix));
  FEWBIT_TRY(check_part_rank(tensor, fused_expert < 0 ? 2 : 3, name));
  if (fused_expert >= 0) {
    if (tensor.view.shape[0] != module.experts) {
      return Error{
          ErrorCode::corrupt,
          fmt::format("holds {} experts, expected {}", tensor.view.shape[0], module.experts), name};
    }
    tensor = first_dim_slice(tensor, fused_expert);
  }
  const Shape expected = {module.n, columns};
  if (tensor.view.shape == expected) return tensor;
  return Error{ErrorCode::corrupt,
               fmt::format("shape is {}, expected {} for a matrix [{}, {}]",
                           shape_text(tensor.view.shape), shape_text(expected), module.n, module.k),
               name};
}

Result<Tensor> as_f32(const Tensor& tensor) {
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::f32, tensor.view.shape));
  const std::span<float> values(reinterpret_cast<float*>(out.bytes.data()),
                                out.bytes.size() / sizeof(float));
  FEWBIT_TRY(convert_to_f32(tensor.view.dtype, tensor.view.bytes, values));
  return std::move(out.tensor);
}

}  // namespace

Result<QuantizedTensor> canonicalize_affine_words(const Checkpoint& checkpoint,
                                                  const Module& module, std::int64_t fused_expert) {
  QuantizedTensor made;
  made.n = module.n;
  made.k = module.k;
  made.scheme = module.scheme;
  const auto bits = checked_mul(module.k, std::int64_t{dtype_bits(module.scheme.weight)});
  if (!module.scheme.scale || !bits || *bits % 32 != 0 ||
      module.scheme.scale->granularity.cols < 1) {
    return Error{ErrorCode::corrupt, fmt::format("rows of {} columns fill no words", module.k),
                 module.name};
  }
  const std::int64_t groups = ceil_div(module.k, module.scheme.scale->granularity.cols);
  FEWBIT_TRY(made.codes, read_matrix(checkpoint, module, "weight", *bits / 32, fused_expert));
  FEWBIT_TRY(check_part_dtype(made.codes, DType::u32, module.part("weight")));
  made.codes.view.dtype = DType::u8;
  made.codes.view.shape = {module.n, *bits / 8};
  FEWBIT_TRY(made.scales, read_matrix(checkpoint, module, "scales", groups, fused_expert));
  FEWBIT_TRY(check_part_dtype(made.scales, module.scheme.scale->dtype, module.part("scales")));
  FEWBIT_TRY(made.offsets, read_matrix(checkpoint, module, "biases", groups, fused_expert));
  if (made.offsets.view.dtype == DType::bf16) {
    FEWBIT_TRY(made.offsets, as_f32(made.offsets));
  }
  if (const auto checked = check_quantized(made); !checked) {
    return Error{checked.error().code, checked.error().what, module.name};
  }
  return made;
}

}  // namespace fewbit
