// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/matrix.hpp"

#include <algorithm>

namespace fewbit::cpu {
namespace {

const std::uint8_t* bytes_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

}  // namespace

std::optional<std::uint64_t> Matrix::packed_bytes(const Scheme& scheme, std::int64_t n,
                                                  std::int64_t k) {
  const auto form = form_of(scheme);
  if (!form) return 0;
  const auto sizes = packed_sizes(*form, {.n = n, .k = k});
  if (!sizes) return std::nullopt;
  return static_cast<std::uint64_t>(sizes->codes) + static_cast<std::uint64_t>(sizes->scales) +
         static_cast<std::uint64_t>(sizes->zeros);
}

Matrix Matrix::open(const Kernels& kernels, const Scheme& scheme, Dims dims,
                    const ConstPackedSpans& bytes, float global_scale) {
  Matrix matrix;
  matrix.blocks_ = blocks_of(dims.n);
  const auto form = form_of(scheme);
  if (!form) {
    matrix.plain_kernel_ = plain_rows(kernels, scheme.weight);
    matrix.plain_ = {
        .values = bytes_of(bytes.codes), .scale = global_scale, .rows = dims.n, .k = dims.k};
    matrix.row_bytes_ = dims.k * (scheme.weight == DType::f32 ? 4 : 2);
    return matrix;
  }
  matrix.packed_kernel_ = kernels.lane16(form->codes);
  matrix.most_tokens_ = kernels.lane16_tokens;
  if (kernels.tiles != nullptr) matrix.tiles_ = kernels.tiles(form->codes);
  matrix.packed_ = {.codes = bytes_of(bytes.codes),
                    .scales = bytes_of(bytes.scales),
                    .zeros = form->zeros ? bytes_of(bytes.zeros) : nullptr,
                    .scale_format = form->scale,
                    .offset_codes = form->offset_codes,
                    .global_scale = global_scale,
                    .blocks = matrix.blocks_,
                    .k = dims.k,
                    .group = form->group_of(dims.k)};
  const std::int64_t groups = form->groups(dims.k);
  const std::int64_t lanes = form->scale == Lane16Scale::f32_blocks ? 1 : 16;
  matrix.code_bytes_ = dims.k / 16 * lane16_cell_bytes(form->codes);
  matrix.scale_bytes_ = groups * lanes * lane16_scale_bytes(form->scale);
  matrix.zero_bytes_ = form->zeros ? groups * 16 : 0;
  return matrix;
}

Lane16Blocks Matrix::packed_from(std::int64_t first) const {
  Lane16Blocks part = packed_;
  part.codes += first * code_bytes_;
  part.scales += first * scale_bytes_;
  if (part.zeros != nullptr) part.zeros += first * zero_bytes_;
  part.blocks -= first;
  return part;
}

void Matrix::multiply(std::int64_t first, std::int64_t count, const float* x, int tokens,
                      float* y) const {
  if (packed_kernel_ != nullptr) {
    Lane16Blocks part = packed_from(first);
    part.blocks = count;
    packed_kernel_(part, x, tokens, y);
    return;
  }
  PlainRows part = plain_;
  part.values += first * 16 * row_bytes_;
  part.rows = std::min(count * 16, plain_.rows - first * 16);
  plain_kernel_(part, x, tokens, y);
}

}  // namespace fewbit::cpu
