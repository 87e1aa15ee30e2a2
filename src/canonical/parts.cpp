// SPDX-License-Identifier: Apache-2.0
#include "canonical/parts.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "canonical/storage.hpp"
#include "core/checked.hpp"
#include "core/convert.hpp"
#include "core/float_types.hpp"

namespace fewbit {
namespace {

Result<void> check_float(const Tensor& tensor, std::string_view name) {
  const DType dtype = tensor.view.dtype;
  if (is_16_or_32_bit_float(dtype)) return {};
  return Error{ErrorCode::corrupt,
               fmt::format("dtype is {}, expected f32, f16 or bf16", dtype_name(dtype)),
               std::string(name)};
}

}  // namespace

Result<void> check_part_rank(const Tensor& tensor, std::size_t rank, std::string_view name) {
  if (tensor.view.shape.size() == rank) return {};
  return Error{
      ErrorCode::corrupt,
      fmt::format("shape is {}, expected {} dimensions", shape_text(tensor.view.shape), rank),
      std::string(name)};
}

Result<void> check_part_dtype(const Tensor& tensor, DType expected, std::string_view name) {
  if (tensor.view.dtype == expected) return {};
  return Error{
      ErrorCode::corrupt,
      fmt::format("dtype is {}, expected {}", dtype_name(tensor.view.dtype), dtype_name(expected)),
      std::string(name)};
}

Result<float> read_factor(const Checkpoint& checkpoint, const Module& module,
                          std::string_view suffix, std::int64_t fused_expert) {
  FEWBIT_TRY(const Tensor tensor, part_tensor(checkpoint, module, suffix));
  const std::string name(module.part(suffix));
  FEWBIT_TRY(check_float(tensor, name));
  const auto width = static_cast<std::size_t>(dtype_bits(tensor.view.dtype)) / 8;
  std::vector<float> values(tensor.view.bytes.size() / width);
  FEWBIT_TRY(convert_to_f32(tensor.view.dtype, tensor.view.bytes, values));
  const bool per_expert =
      fused_expert >= 0 && values.size() == static_cast<std::size_t>(module.experts);
  if (values.size() != 1 && !per_expert) {
    return Error{ErrorCode::corrupt,
                 fmt::format("shape is {}, expected [] or [1]{}", shape_text(tensor.view.shape),
                             fused_expert >= 0 ? fmt::format(" or [{}]", module.experts) : ""),
                 name};
  }
  const float value = values[per_expert ? static_cast<std::size_t>(fused_expert) : 0];
  if (std::isfinite(value) && value >= 0.0F) return value;
  return Error{ErrorCode::corrupt,
               fmt::format("factor is {}, expected a finite number of at least 0", value), name};
}

Result<Tensor> read_pre_quant_scale(const Checkpoint& checkpoint, const Module& module,
                                    std::int64_t fused_expert) {
  if (!module.scheme.pre_quant_scale) return Tensor{};
  FEWBIT_TRY(Tensor tensor, part_tensor(checkpoint, module, "pre_quant_scale"));
  const std::string name(module.part("pre_quant_scale"));
  FEWBIT_TRY(check_float(tensor, name));
  const Shape one = {module.k};
  const Shape all = {module.experts, module.k};
  if (fused_expert >= 0 && tensor.view.shape == all) return first_dim_slice(tensor, fused_expert);
  if (tensor.view.shape == one) return tensor;
  return Error{
      ErrorCode::corrupt,
      fmt::format("shape is {}, expected {}{}", shape_text(tensor.view.shape), shape_text(one),
                  fused_expert >= 0 ? fmt::format(" or {}", shape_text(all)) : ""),
      name};
}

void words_as_bytes(Tensor& tensor, DType dtype) {
  if (tensor.view.dtype != DType::u32 || tensor.view.shape.empty()) return;
  tensor.view.dtype = dtype;
  tensor.view.shape.back() = checked_mul(tensor.view.shape.back(), std::int64_t{4}).value_or(0);
}

}  // namespace fewbit
