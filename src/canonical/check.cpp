// SPDX-License-Identifier: Apache-2.0
// Whether the parts of a canonical matrix fit its scheme.
#include <fmt/format.h>

#include "canonical/code_row.hpp"
#include "canonical/gguf_matrix.hpp"
#include "canonical/grid.hpp"
#include "core/checked.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t largest_dimension = std::int64_t{1} << 40;

Error bad(std::string what) { return Error{ErrorCode::invalid_argument, std::move(what), ""}; }

Result<void> check_bytes(const char* part, const Tensor& tensor,
                         std::optional<std::uint64_t> want) {
  if (!want) return Error{ErrorCode::limit, fmt::format("{}: size overflows", part), ""};
  if (tensor.view.bytes.size() == *want) return {};
  return bad(fmt::format("{} of {} bytes, expected {}", part, tensor.view.bytes.size(), *want));
}

Result<void> check_dtype(const char* part, DType dtype, std::initializer_list<DType> known) {
  for (const DType each : known) {
    if (each == dtype) return {};
  }
  return bad(fmt::format("{} are {}, which fewbit can't apply", part, dtype_name(dtype)));
}

// An optional part with one element a group.
Result<void> check_grid_part(const char* part, const QuantizedTensor& tensor, const Tensor& grid,
                             std::initializer_list<DType> known) {
  FEWBIT_TRY(check_dtype(part, grid.view.dtype, known));
  const std::optional<std::uint64_t> elements = grid_elements(tensor);
  if (!elements) return Error{ErrorCode::limit, fmt::format("{}: size overflows", part), ""};
  const auto width = static_cast<std::uint64_t>(dtype_bits(grid.view.dtype)) / 8;
  return check_bytes(part, grid, checked_mul(*elements, width));
}

Result<void> check_columns_part(const char* part, const QuantizedTensor& tensor, const Tensor& list,
                                std::initializer_list<DType> known) {
  FEWBIT_TRY(check_dtype(part, list.view.dtype, known));
  const auto width = static_cast<std::uint64_t>(dtype_bits(list.view.dtype)) / 8;
  return check_bytes(part, list, checked_mul(static_cast<std::uint64_t>(tensor.k), width));
}

Result<void> check_codes(const QuantizedTensor& tensor) {
  if (!has_code_values(tensor.scheme.weight)) {
    return bad(fmt::format("codes of {} have no value", dtype_name(tensor.scheme.weight)));
  }
  const std::uint64_t row = code_row_bytes(tensor.scheme.weight, tensor.k);
  return check_bytes("codes", tensor.codes, checked_mul(row, static_cast<std::uint64_t>(tensor.n)));
}

Result<void> check_group_index(const QuantizedTensor& tensor) {
  if (tensor.scheme.act_order != ActOrder::group) return {};
  FEWBIT_TRY(check_columns_part("g_idx", tensor, tensor.g_idx, {DType::i32}));
  const std::int64_t groups = grid_columns(tensor);
  const std::int64_t each = tensor.scheme.scale->granularity.cols;
  if (groups < groups_along(tensor.k, each)) {
    return bad(
        fmt::format("scales of {} groups, expected at least {} for {} columns in groups of {}",
                    groups, groups_along(tensor.k, each), tensor.k, each));
  }
  for (std::int64_t j = 0; j < tensor.k; ++j) {
    const std::int32_t group = group_of_column(tensor, j);
    if (group < 0 || group >= groups) {
      return bad(fmt::format("g_idx[{}] is {}, expected 0 to {}", j, group, groups - 1));
    }
  }
  return {};
}

}  // namespace

Result<void> check_quantized(const QuantizedTensor& tensor) {
  if (tensor.n < 1 || tensor.k < 1 || tensor.n > largest_dimension ||
      tensor.k > largest_dimension) {
    return bad(fmt::format("matrix [{}, {}], expected 1 to 2^40", tensor.n, tensor.k));
  }
  if (tensor.scheme.ggml_type) {
    if (const auto rows = gguf_rows(tensor); !rows) return rows.error();
    return {};
  }
  FEWBIT_TRY(check_codes(tensor));
  if (!tensor.scheme.scale) return {};
  FEWBIT_TRY(check_grid_part("scales", tensor, tensor.scales,
                             {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2,
                              DType::f8_e8m0, DType::f8_e5m3}));
  if (tensor.scheme.zero_points) {
    FEWBIT_TRY(check_grid_part("zero_points", tensor, tensor.zero_points,
                               {DType::u8, DType::i8, DType::i32}));
  }
  if (!tensor.offsets.empty()) {
    FEWBIT_TRY(check_grid_part("offsets", tensor, tensor.offsets, {DType::f16, DType::f32}));
  }
  return check_group_index(tensor);
}

}  // namespace fewbit
