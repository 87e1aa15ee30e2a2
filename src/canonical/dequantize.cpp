// SPDX-License-Identifier: Apache-2.0
// The meaning of every scheme, once.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "canonical/code_row.hpp"
#include "canonical/exact_rows.hpp"
#include "canonical/gguf_matrix.hpp"
#include "canonical/grid.hpp"
#include "core/float_convert.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {
namespace {

Error bad(std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), "dequantize_rows"};
}

// What a group adds to its codes: value = (code - zero) * scale + offset.
template <class Number>
struct Group {
  Number scale = 1;  // times global_scale
  Number zero = 0;
  Number offset = 0;
};

// Element `index` of a grid part; check_quantized admits these types only.
float grid_value(const Tensor& grid, std::int64_t index) {
  const auto width = static_cast<std::size_t>(dtype_bits(grid.view.dtype) / 8);
  const auto bytes = grid.view.bytes.subspan(static_cast<std::size_t>(index) * width, width);
  float value = 0;
  if (grid.view.dtype == DType::i32) {
    std::int32_t integer = 0;
    std::memcpy(&integer, bytes.data(), sizeof(integer));
    return static_cast<float>(integer);
  }
  if (grid.view.dtype == DType::f8_e5m3) {
    return f8_e5m3_to_f32(std::to_integer<std::uint8_t>(bytes[0]));
  }
  decode_codes(grid.view.dtype, bytes, std::span(&value, 1));
  return value;
}

template <class Number>
Group<Number> read_group(const QuantizedTensor& tensor, std::int64_t index) {
  Group<Number> group;
  group.scale = static_cast<Number>(grid_value(tensor.scales, index)) * tensor.global_scale;
  group.zero = tensor.scheme.zero_points ? grid_value(tensor.zero_points, index)
                                         : static_cast<float>(tensor.scheme.zero_point);
  if (!tensor.offsets.empty()) group.offset = grid_value(tensor.offsets, index);
  return group;
}

template <class Number>
void apply(const Group<Number>& group, bool has_offset, std::span<Number> values) {
  for (Number& value : values) value = (value - group.zero) * group.scale;
  if (!has_offset) return;
  for (Number& value : values) value += group.offset;
}

template <class Number>
void scale_row(const QuantizedTensor& tensor, std::int64_t row, std::span<Number> values) {
  const bool has_offset = !tensor.offsets.empty();
  const std::int64_t columns = grid_columns(tensor);
  const std::int64_t first = grid_row_of(tensor, row) * columns;
  if (tensor.scheme.act_order == ActOrder::group) {
    for (std::size_t j = 0; j < values.size(); ++j) {
      const std::int32_t g = group_of_column(tensor, static_cast<std::int64_t>(j));
      apply(read_group<Number>(tensor, first + g), has_offset, values.subspan(j, 1));
    }
    return;
  }
  const std::int64_t cols = tensor.scheme.scale->granularity.cols;
  const std::size_t run = cols <= 0 ? values.size() : static_cast<std::size_t>(cols);
  for (std::int64_t g = 0; g < columns; ++g) {
    const std::size_t begin = static_cast<std::size_t>(g) * run;
    apply(read_group<Number>(tensor, first + g), has_offset,
          values.subspan(begin, std::min(run, values.size() - begin)));
  }
}

std::span<const std::byte> code_row(const QuantizedTensor& tensor, std::int64_t row) {
  const std::uint64_t bytes = code_row_bytes(tensor.scheme.weight, tensor.k);
  return tensor.codes.view.bytes.subspan(static_cast<std::size_t>(row) * bytes, bytes);
}

Result<void> check_rows(const QuantizedTensor& tensor, std::int64_t row, std::size_t size) {
  const auto k = static_cast<std::size_t>(tensor.k);
  if (tensor.k <= 0 || size % k != 0) {
    return bad(fmt::format("{} elements are no whole rows of {}", size, tensor.k));
  }
  const auto rows = static_cast<std::int64_t>(size / k);
  if (row < 0 || row > tensor.n || rows > tensor.n - row) {
    return bad(fmt::format("{} rows from row {}, but the matrix has {}", rows, row, tensor.n));
  }
  if (tensor.scheme.ggml_type || has_code_values(tensor.scheme.weight)) return {};
  return Error{ErrorCode::unsupported, "can't dequantize " + scheme_text(tensor.scheme),
               "dequantize_rows"};
}

// Codes of one row become its values.
template <class Number>
void scale_codes(const QuantizedTensor& tensor, std::int64_t row, std::span<Number> values) {
  if (tensor.scheme.scale) {
    scale_row(tensor, row, values);
  } else if (tensor.global_scale != 1.0F) {
    for (Number& value : values) value *= tensor.global_scale;
  }
}

}  // namespace

Result<void> dequantize_rows(const QuantizedTensor& tensor, std::int64_t row,
                             std::span<float> out) {
  FEWBIT_TRY(check_rows(tensor, row, out.size()));
  if (tensor.scheme.ggml_type) return dequantize_gguf_rows(tensor, row, out);
  const auto k = static_cast<std::size_t>(tensor.k);
  for (std::size_t at = 0; at < out.size(); at += k, ++row) {
    const std::span<float> values = out.subspan(at, k);
    decode_codes(tensor.scheme.weight, code_row(tensor, row), values);
    scale_codes(tensor, row, values);
  }
  return {};
}

Result<void> dequantize_rows_exactly(const QuantizedTensor& tensor, std::int64_t row,
                                     std::span<double> out) {
  FEWBIT_TRY(check_rows(tensor, row, out.size()));
  const auto k = static_cast<std::size_t>(tensor.k);
  std::vector<float> codes(k);
  for (std::size_t at = 0; at < out.size(); at += k, ++row) {
    const std::span<double> values = out.subspan(at, k);
    const bool blocks = tensor.scheme.ggml_type.has_value();
    if (blocks) {
      FEWBIT_TRY(dequantize_gguf_rows(tensor, row, codes));
    } else {
      decode_codes(tensor.scheme.weight, code_row(tensor, row), codes);
    }
    std::copy(codes.begin(), codes.end(), values.begin());
    if (!blocks) scale_codes(tensor, row, values);
  }
  return {};
}

}  // namespace fewbit
