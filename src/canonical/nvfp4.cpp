// SPDX-License-Identifier: Apache-2.0
// ModelOpt NVFP4: packed codes, e4m3 scales a group of 16 and an f32 factor.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "canonical/parts.hpp"
#include "canonical/storage.hpp"
#include "core/checked.hpp"

namespace fewbit {
namespace {

// One f32 for the module, or one an expert.
Result<float> read_global(const Checkpoint& checkpoint, const Module& module,
                          std::int64_t fused_expert) {
  FEWBIT_TRY(const Tensor tensor, part_tensor(checkpoint, module, "weight_scale_2"));
  const std::string_view name = module.part("weight_scale_2");
  FEWBIT_TRY(check_part_dtype(tensor, DType::f32, name));
  const std::size_t count = tensor.view.bytes.size() / sizeof(float);
  const bool per_expert = fused_expert >= 0 && count == static_cast<std::size_t>(module.experts);
  if (count != 1 && !per_expert) {
    return Error{ErrorCode::corrupt,
                 fmt::format("shape is {}, expected [] or [1]{}", shape_text(tensor.view.shape),
                             fused_expert >= 0 ? fmt::format(" or [{}]", module.experts) : ""),
                 std::string(name)};
  }
  float value = 0;
  const std::size_t at = per_expert ? static_cast<std::size_t>(fused_expert) : 0;
  std::memcpy(&value, tensor.view.bytes.data() + at * sizeof(float), sizeof(float));
  if (std::isfinite(value) && value >= 0.0F) return value;
  return Error{ErrorCode::corrupt,
               fmt::format("global scale is {}, expected a finite number of at least 0", value),
               std::string(name)};
}

// Codes [n, k / 2] as u8 and scales of one matrix; of all experts when they are fused.
struct Parts {
  Tensor codes;
  Tensor scales;
};

Result<Parts> read_parts(const Checkpoint& checkpoint, const Module& module, std::size_t rank) {
  FEWBIT_TRY(Tensor codes, part_tensor(checkpoint, module, "weight"));
  FEWBIT_TRY(Tensor scales, part_tensor(checkpoint, module, "weight_scale"));
  FEWBIT_TRY(check_part_rank(codes, rank, module.part("weight")));
  FEWBIT_TRY(check_part_rank(scales, rank, module.part("weight_scale")));
  // Codes in signed bytes, or in a type of their own, are the same bits.
  if (codes.view.dtype == DType::i8) codes.view.dtype = DType::u8;
  if (codes.view.dtype == DType::f4_e2m1 && codes.view.shape.back() % 2 == 0) {
    codes.view.dtype = DType::u8;
    codes.view.shape.back() /= 2;
  }
  FEWBIT_TRY(check_part_dtype(codes, DType::u8, module.part("weight")));
  FEWBIT_TRY(check_part_dtype(scales, DType::f8_e4m3, module.part("weight_scale")));
  return Parts{std::move(codes), std::move(scales)};
}

Result<void> take_expert(Parts& parts, const Module& module, std::int64_t fused_expert) {
  if (parts.scales.view.shape[0] != parts.codes.view.shape[0]) {
    return Error{ErrorCode::corrupt,
                 fmt::format("holds {} experts, expected {} as in weight",
                             parts.scales.view.shape[0], parts.codes.view.shape[0]),
                 std::string(module.part("weight_scale"))};
  }
  parts.codes = first_dim_slice(parts.codes, fused_expert);
  parts.scales = first_dim_slice(parts.scales, fused_expert);
  return {};
}

}  // namespace

Result<QuantizedTensor> canonicalize_nvfp4(const Checkpoint& checkpoint, const Module& module,
                                           std::int64_t fused_expert) {
  if (module.transposed) return canonicalize_fp4(checkpoint, module, fused_expert);
  FEWBIT_TRY(Parts parts, read_parts(checkpoint, module, fused_expert < 0 ? 2 : 3));
  FEWBIT_TRY(const float global, read_global(checkpoint, module, fused_expert));
  if (fused_expert >= 0) {
    FEWBIT_TRY(take_expert(parts, module, fused_expert));
  }
  const Shape& shape = parts.codes.view.shape;
  const std::int64_t n = shape[0];
  const std::int64_t k = checked_mul(shape[1], std::int64_t{2}).value_or(0);
  const Shape expected = {n, ceil_div(k, std::int64_t{16})};
  if (parts.scales.view.shape != expected) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("shape is {}, expected {} for a weight of {} packed bytes",
                    shape_text(parts.scales.view.shape), shape_text(expected), shape_text(shape)),
        std::string(module.part("weight_scale"))};
  }
  Result<QuantizedTensor> made =
      make_nvfp4(n, k, std::move(parts.codes), std::move(parts.scales), global);
  if (!made) return Error{made.error().code, made.error().what, module.name};
  made->scheme.producer = module.scheme.producer;
  made->scheme.activation = module.scheme.activation;
  made->scheme.pre_quant_scale = module.scheme.pre_quant_scale;
  FEWBIT_TRY(made->pre_quant_scale, read_pre_quant_scale(checkpoint, module, fused_expert));
  return made;
}

}  // namespace fewbit
