// SPDX-License-Identifier: Apache-2.0
#include "layout/check_tensor.hpp"

#include <utility>

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

}  // namespace

Result<void> check_tensor(const std::string& where, const TensorView& tensor, DType dtype,
                          const Shape& shape) {
  if (tensor.dtype != dtype) {
    return bad(where, "dtype " + std::string(dtype_name(tensor.dtype)) + ", expected " +
                          std::string(dtype_name(dtype)));
  }
  if (tensor.device.kind != DeviceKind::cpu) {
    return bad(where, "lies in device memory, expected host memory");
  }
  if (tensor.shape != shape) {
    return bad(where, "shape " + shape_text(tensor.shape) + ", expected " + shape_text(shape));
  }
  FEWBIT_TRY(const std::uint64_t bytes, tensor_bytes(dtype, shape));
  if (tensor.bytes.size() != bytes) {
    return bad(where, "holds " + std::to_string(tensor.bytes.size()) + " bytes, expected " +
                          std::to_string(bytes) + " for shape " + shape_text(shape));
  }
  return {};
}

Result<void> check_scale_bytes(const std::string& where, const TensorView& tensor, DType dtype,
                               const Shape& shape) {
  TensorView view = tensor;
  if (view.dtype == DType::u8) view.dtype = dtype;
  return check_tensor(where, view, dtype, shape);
}

Result<void> check_extent(const std::string& name, std::int64_t value) {
  constexpr std::int64_t largest = std::int64_t{1} << 24;
  if (value > 0 && value <= largest) return {};
  return bad(name, std::to_string(value) + ", expected 1 to " + std::to_string(largest));
}

}  // namespace fewbit
