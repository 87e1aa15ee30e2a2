// SPDX-License-Identifier: Apache-2.0
#include "scheme/largest_weight.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/checked.hpp"
#include "core/convert.hpp"
#include "scheme/fp4.hpp"
#include "scheme/scale_parts.hpp"

namespace fewbit {
namespace {

constexpr double e2m1_magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

// Codes and scales of all matrices, one row after another.
struct Rows {
  std::span<const std::byte> codes;
  DType code_type = DType::f4_e2m1;
  std::vector<float> scales;
  std::size_t n = 0;
  std::size_t k = 0;
  std::size_t matrices = 1;
  std::size_t group_rows = 0;  // of a scale
  std::size_t group_cols = 0;
};

std::size_t pieces(std::size_t size, std::size_t each) { return (size + each - 1) / each; }

// Magnitudes of the codes of a row; a NaN is none.
Result<void> read_row(const Rows& rows, std::size_t row, std::span<float> out) {
  const auto bits = static_cast<std::size_t>(dtype_bits(rows.code_type));
  const std::size_t bytes = rows.k * bits / 8;
  const auto from = rows.codes.subspan(row * bytes, bytes);
  if (bits == 8) {
    FEWBIT_TRY(convert_to_f32(rows.code_type, from, out));
    for (float& value : out) value = std::isnan(value) ? 0.0F : std::fabs(value);
    return {};
  }
  for (std::size_t j = 0; j < rows.k; ++j) {
    const auto byte = std::to_integer<unsigned>(from[j / 2]);
    out[j] = static_cast<float>(e2m1_magnitudes[(j % 2 == 0 ? byte : byte >> 4) & 7U]);
  }
  return {};
}

std::optional<double> largest_of(const Rows& rows, double factor) {
  const std::size_t cols = pieces(rows.k, rows.group_cols);
  const std::size_t grid = pieces(rows.n, rows.group_rows) * cols;
  if (rows.scales.size() != rows.matrices * grid) return std::nullopt;
  std::vector<float> values(rows.k);
  double largest = 0;
  for (std::size_t row = 0; row < rows.matrices * rows.n; ++row) {
    if (!read_row(rows, row, values)) return std::nullopt;
    const std::size_t first = row / rows.n * grid + row % rows.n / rows.group_rows * cols;
    for (std::size_t c = 0; c < cols; ++c) {
      const double scale = std::fabs(double{rows.scales[first + c]} * factor);
      if (scale > double{std::numeric_limits<float>::max()}) return std::nullopt;
      if (std::isnan(scale)) continue;
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(c * rows.group_cols);
      const auto count = std::min(rows.group_cols, rows.k - c * rows.group_cols);
      const float code = *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(count));
      largest = std::max(largest, scale * double{code});
    }
  }
  return largest;
}

std::size_t at(std::int64_t size) { return static_cast<std::size_t>(size); }

// Whether so many bytes are the codes.
bool fills(const Rows& rows, std::size_t bytes) {
  const auto row = checked_mul(rows.k, at(dtype_bits(rows.code_type)));
  const auto matrix = row ? checked_mul(*row / 8, rows.n) : std::nullopt;
  const auto all = matrix ? checked_mul(*matrix, rows.matrices) : std::nullopt;
  return all == bytes;
}

}  // namespace

std::optional<double> largest_stored_weight(const Checkpoint& checkpoint, const Module& module,
                                            DType scale_type, double factor) {
  const Scheme& scheme = module.scheme;
  const bool four = scheme.weight == DType::f4_e2m1;
  if (!scheme.scale || module.transposed || module.n < 1 || module.k < 1) return std::nullopt;
  if (!four && !dtype_name(scheme.weight).starts_with("f8_")) return std::nullopt;
  const Fp4Parts parts = fp4_parts(module);
  const auto names = scale_parts(module);
  const std::string_view scale = four || names.empty() ? parts.scale : names.front();
  const TensorInfo* codes = checkpoint.find(module.part(four ? parts.codes : "weight"));
  const TensorInfo* scales = checkpoint.find(module.part(scale));
  if (codes == nullptr || scales == nullptr) return std::nullopt;
  const Granularity& grid = scheme.scale->granularity;
  Rows rows;
  rows.code_type = scheme.weight;
  rows.n = at(module.n);
  rows.k = at(module.k);
  rows.matrices = at(std::max<std::int64_t>(module.experts, 1));
  rows.group_rows = grid.rows == 0 ? rows.n : at(grid.rows);
  rows.group_cols = grid.cols == 0 ? rows.k : at(grid.cols);
  const Tensor code_bytes = checkpoint.tensor(*codes);
  const Tensor scale_bytes = checkpoint.tensor(*scales);
  rows.codes = code_bytes.view.bytes;
  if (!fills(rows, rows.codes.size())) return std::nullopt;
  rows.scales.resize(scale_bytes.view.bytes.size() * 8 / at(dtype_bits(scale_type)));
  if (!convert_to_f32(scale_type, scale_bytes.view.bytes, rows.scales)) return std::nullopt;
  const auto largest = largest_of(rows, factor);
  checkpoint.release(*codes);
  return largest;
}

}  // namespace fewbit
