// SPDX-License-Identifier: Apache-2.0
// Dequantization of whole matrices.
#include "core/convert.hpp"
#include "fewbit/quantized.hpp"
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

Result<Tensor> converted(const std::vector<float>& values, DType dtype, const Shape& shape) {
  if (dtype == DType::f32) return tensor_of(dtype, shape, values);
  FEWBIT_TRY(const std::uint64_t size, tensor_bytes(dtype, shape));
  std::vector<std::byte> bytes(size);
  FEWBIT_TRY(convert_from_f32(values, dtype, bytes));
  return tensor_of(dtype, shape, bytes);
}

}  // namespace

Result<Outputs> dequant_nvfp4(const GoldenCase& golden_case) {
  FEWBIT_TRY(const std::int64_t n, golden_case.int_param("rows"));
  FEWBIT_TRY(const std::int64_t k, golden_case.int_param("cols"));
  FEWBIT_TRY(const std::string convention, golden_case.string_param("convention"));
  FEWBIT_TRY(const Tensor codes, golden_case.input("weight"));
  FEWBIT_TRY(const Tensor scales, golden_case.input("scale_plain"));
  FEWBIT_TRY(const std::vector<float> global, golden_case.values<float>("global_scale"));
  if (global.size() != 1) {
    return Error{ErrorCode::invalid_argument,
                 std::to_string(global.size()) + " global scales, expected 1", golden_case.name};
  }
  const bool reciprocal = convention.starts_with("compressed-tensors");
  const float factor = reciprocal ? 1.0F / global.front() : global.front();
  FEWBIT_TRY(const QuantizedTensor tensor, make_nvfp4(n, k, codes, scales, factor));
  std::vector<float> values(static_cast<std::size_t>(n * k));
  FEWBIT_TRY(dequantize_rows(tensor, 0, values));
  Outputs outputs;
  for (const auto& [role, dtype] :
       {std::pair{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}}) {
    if (!golden_case.wants(role)) continue;
    FEWBIT_TRY(outputs[role], converted(values, dtype, {n, k}));
  }
  return outputs;
}

}  // namespace fewbit::golden
