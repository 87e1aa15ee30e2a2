// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/matrix.hpp"

#include <algorithm>

#include "core/checked.hpp"
#include "layout/cpu_f4_lane16_pack.hpp"

namespace fewbit::cpu {
namespace {

const std::uint8_t* bytes_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

}  // namespace

std::optional<PackedSizes> packed_sizes(Dims dims) {
  // Below n * k of padded rows, which bounds codes and scales.
  const auto rows = checked_round_up(dims.n, CpuF4Lane16::block_rows);
  const auto most = rows ? checked_mul(*rows, dims.k) : std::nullopt;
  if (!most || !checked_add(*most, std::int64_t{64})) return std::nullopt;
  return PackedSizes{.codes = round_up(CpuF4Lane16::bytes(dims), std::int64_t{64}),
                     .scales = round_up(CpuF4Lane16Scales::bytes({.n = dims.n, .k = dims.k / 16}),
                                        std::int64_t{64})};
}

std::optional<std::uint64_t> Matrix::packed_bytes(const Scheme& scheme, std::int64_t n,
                                                  std::int64_t k) {
  if (!is_f4(scheme)) return 0;
  const auto sizes = packed_sizes({.n = n, .k = k});
  if (!sizes) return std::nullopt;
  return static_cast<std::uint64_t>(sizes->codes) + static_cast<std::uint64_t>(sizes->scales);
}

void pack_matrix(const QuantizedTensor& tensor, std::span<std::byte> codes,
                 std::span<std::byte> scales) {
  const Dims dims{.n = tensor.n, .k = tensor.k};
  pack_cpu_f4_lane16({.codes = bytes_of(tensor.codes.view.bytes),
                      .scales = bytes_of(tensor.scales.view.bytes),
                      .dims = dims},
                     reinterpret_cast<std::uint8_t*>(codes.data()),
                     reinterpret_cast<std::uint8_t*>(scales.data()));
  const auto used = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  std::ranges::fill(codes.subspan(used(CpuF4Lane16::bytes(dims))), std::byte{0});
  std::ranges::fill(scales.subspan(used(CpuF4Lane16Scales::bytes({.n = dims.n, .k = dims.k / 16}))),
                    std::byte{0});
}

Matrix Matrix::open(const Kernels& kernels, const Scheme& scheme, Dims dims, const Bytes& bytes) {
  Matrix matrix;
  matrix.blocks_ = blocks_of(dims.n);
  if (!is_f4(scheme)) {
    matrix.plain_kernel_ = plain_rows(kernels, scheme.weight);
    matrix.plain_ = {
        .values = bytes_of(bytes.codes), .scale = bytes.global_scale, .rows = dims.n, .k = dims.k};
    matrix.row_bytes_ = dims.k * (scheme.weight == DType::f32 ? 4 : 2);
    return matrix;
  }
  matrix.f4_kernel_ = kernels.f4_lane16;
  matrix.f4_ = {.codes = bytes_of(bytes.codes),
                .scales = bytes_of(bytes.scales),
                .global_scale = bytes.global_scale,
                .blocks = matrix.blocks_,
                .k = dims.k};
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
