// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/matrix.hpp"

#include <algorithm>

#include "core/checked.hpp"
#include "layout/cpu_f4_lane16_pack.hpp"

namespace fewbit::cpu {
namespace {

const std::uint8_t* bytes_of(const Tensor& tensor) {
  return reinterpret_cast<const std::uint8_t*>(tensor.view.bytes.data());
}

Dims dims_of(const QuantizedTensor& tensor) { return {.n = tensor.n, .k = tensor.k}; }

}  // namespace

std::optional<std::uint64_t> Matrix::packed_bytes(const Scheme& scheme, std::int64_t n,
                                                  std::int64_t k) {
  if (!is_f4(scheme)) return 0;
  // Below n * k of padded rows, which bounds codes and scales.
  const auto rows = checked_round_up(n, CpuF4Lane16::block_rows);
  if (!rows || !checked_mul(*rows, k)) return std::nullopt;
  const std::int64_t codes = CpuF4Lane16::bytes({.n = n, .k = k});
  const std::int64_t scales = CpuF4Lane16Scales::bytes({.n = n, .k = k / 16});
  return static_cast<std::uint64_t>(round_up(codes, std::int64_t{64}) +
                                    round_up(scales, std::int64_t{64}));
}

Matrix Matrix::make(const Kernels& kernels, const QuantizedTensor& tensor, std::byte* memory) {
  Matrix matrix;
  matrix.blocks_ = blocks_of(tensor.n);
  if (!is_f4(tensor.scheme)) {
    matrix.plain_kernel_ = plain_rows(kernels, tensor.scheme.weight);
    matrix.plain_ = {.values = bytes_of(tensor.codes),
                     .scale = tensor.global_scale,
                     .rows = tensor.n,
                     .k = tensor.k};
    matrix.row_bytes_ = tensor.k * (tensor.scheme.weight == DType::f32 ? 4 : 2);
    return matrix;
  }
  auto* codes = reinterpret_cast<std::uint8_t*>(memory);
  std::uint8_t* scales = codes + round_up(CpuF4Lane16::bytes(dims_of(tensor)), std::int64_t{64});
  pack_cpu_f4_lane16(
      {.codes = bytes_of(tensor.codes), .scales = bytes_of(tensor.scales), .dims = dims_of(tensor)},
      codes, scales);
  matrix.f4_kernel_ = kernels.f4_lane16;
  matrix.f4_ = {.codes = codes,
                .scales = scales,
                .global_scale = tensor.global_scale,
                .blocks = matrix.blocks_,
                .k = tensor.k};
  return matrix;
}

void Matrix::multiply(std::int64_t first, std::int64_t count, const float* x, int tokens,
                      float* y) const {
  if (f4_kernel_ != nullptr) {
    F4Lane16Blocks part = f4_;
    part.codes += first * f4_.k * 8;
    part.scales += first * f4_.k;
    part.blocks = count;
    f4_kernel_(part, x, tokens, y);
    return;
  }
  PlainRows part = plain_;
  part.values += first * 16 * row_bytes_;
  part.rows = std::min(count * 16, plain_.rows - first * 16);
  plain_kernel_(part, x, tokens, y);
}

const char* layout_name(const Scheme& scheme) {
  return is_f4(scheme) ? "cpu_f4_lane16" : "row_major";
}

}  // namespace fewbit::cpu
