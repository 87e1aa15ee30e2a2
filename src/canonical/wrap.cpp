// SPDX-License-Identifier: Apache-2.0
// Canonical matrices over memory of the caller.
#include <fmt/format.h>

#include "core/checked.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {
namespace {

Error bad(std::string what) { return Error{ErrorCode::invalid_argument, std::move(what), ""}; }

Result<void> check_matrix(std::int64_t n, std::int64_t k) {
  if (n >= 1 && k >= 1) return {};
  return bad(fmt::format("matrix [{}, {}], expected at least [1, 1]", n, k));
}

// Packed codes may be named as bytes; otherwise the dtype is the expected one.
Result<void> check_part(const char* name, const TensorView& view, DType dtype, const Shape& shape) {
  FEWBIT_TRY(const std::uint64_t bytes, tensor_bytes(dtype, shape));
  if (view.dtype != dtype && view.dtype != DType::u8) {
    return bad(fmt::format("{} are {}, expected {} or u8", name, dtype_name(view.dtype),
                           dtype_name(dtype)));
  }
  if (view.bytes.size() != bytes) {
    return bad(fmt::format("{} of {} bytes, expected {} for {} {}", name, view.bytes.size(), bytes,
                           dtype_name(dtype), shape_text(shape)));
  }
  return {};
}

}  // namespace

Result<QuantizedTensor> make_plain(std::int64_t n, std::int64_t k, Tensor values,
                                   float global_scale) {
  FEWBIT_TRY(check_matrix(n, k));
  const DType dtype = values.view.dtype;
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) {
    return bad(fmt::format("values are {}, expected f32, f16 or bf16", dtype_name(dtype)));
  }
  FEWBIT_TRY(check_part("values", values.view, dtype, {n, k}));
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme = plain_scheme(dtype);
  tensor.codes = std::move(values);
  tensor.codes.view.shape = {n, k};
  tensor.global_scale = global_scale;
  return tensor;
}

Result<QuantizedTensor> make_nvfp4(std::int64_t n, std::int64_t k, Tensor codes, Tensor scales,
                                   float global_scale) {
  FEWBIT_TRY(check_matrix(n, k));
  if (k % 2 != 0) return bad(fmt::format("k is {}, but two codes share a byte of a row", k));
  FEWBIT_TRY(check_part("codes", codes.view, DType::f4_e2m1, {n, k}));
  const Shape grid{n, ceil_div<std::int64_t>(k, 16)};
  FEWBIT_TRY(check_part("scales", scales.view, DType::f8_e4m3, grid));
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme = nvfp4_scheme();
  tensor.codes = std::move(codes);
  tensor.codes.view.shape = {n, tensor.codes.view.dtype == DType::u8 ? k / 2 : k};
  tensor.scales = std::move(scales);
  tensor.scales.view.dtype = DType::f8_e4m3;
  tensor.scales.view.shape = grid;
  tensor.global_scale = global_scale;
  return tensor;
}

}  // namespace fewbit
