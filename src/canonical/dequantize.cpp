// SPDX-License-Identifier: Apache-2.0
// The meaning of every scheme, once.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "canonical/code_row.hpp"
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
struct Group {
  float scale = 1.0F;  // times global_scale
  float zero = 0.0F;
  float offset = 0.0F;
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

Group read_group(const QuantizedTensor& tensor, std::int64_t index) {
  Group group;
  group.scale = grid_value(tensor.scales, index) * tensor.global_scale;
  group.zero = tensor.scheme.zero_points ? grid_value(tensor.zero_points, index)
                                         : static_cast<float>(tensor.scheme.zero_point);
  if (!tensor.offsets.empty()) group.offset = grid_value(tensor.offsets, index);
  return group;
}

void apply(const Group& group, bool has_offset, std::span<float> values) {
  for (float& value : values) value = (value - group.zero) * group.scale;
  if (!has_offset) return;
  for (float& value : values) value += group.offset;
}

void scale_row(const QuantizedTensor& tensor, std::int64_t row, std::span<float> values) {
  const bool has_offset = !tensor.offsets.empty();
  const std::int64_t columns = grid_columns(tensor);
  const std::int64_t first = grid_row_of(tensor, row) * columns;
  if (tensor.scheme.act_order == ActOrder::group) {
    for (std::size_t j = 0; j < values.size(); ++j) {
      const std::int32_t g = group_of_column(tensor, static_cast<std::int64_t>(j));
      apply(read_group(tensor, first + g), has_offset, values.subspan(j, 1));
    }
    return;
  }
  const std::int64_t cols = tensor.scheme.scale->granularity.cols;
  const std::size_t run = cols <= 0 ? values.size() : static_cast<std::size_t>(cols);
  for (std::int64_t g = 0; g < columns; ++g) {
    const std::size_t begin = static_cast<std::size_t>(g) * run;
    apply(read_group(tensor, first + g), has_offset,
          values.subspan(begin, std::min(run, values.size() - begin)));
  }
}

std::span<const std::byte> code_row(const QuantizedTensor& tensor, std::int64_t row) {
  const std::uint64_t bytes = code_row_bytes(tensor.scheme.weight, tensor.k);
  return tensor.codes.view.bytes.subspan(static_cast<std::size_t>(row) * bytes, bytes);
}

}  // namespace

Result<void> dequantize_rows(const QuantizedTensor& tensor, std::int64_t row,
                             std::span<float> out) {
  const auto k = static_cast<std::size_t>(tensor.k);
  if (tensor.k <= 0 || out.size() % k != 0) {
    return bad(fmt::format("{} elements are no whole rows of {}", out.size(), tensor.k));
  }
  const auto rows = static_cast<std::int64_t>(out.size() / k);
  if (row < 0 || row > tensor.n || rows > tensor.n - row) {
    return bad(fmt::format("{} rows from row {}, but the matrix has {}", rows, row, tensor.n));
  }
  if (tensor.scheme.ggml_type) return dequantize_gguf_rows(tensor, row, out);
  if (!has_code_values(tensor.scheme.weight)) {
    return Error{ErrorCode::unsupported, "can't dequantize " + scheme_text(tensor.scheme),
                 "dequantize_rows"};
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::span<float> values = out.subspan(static_cast<std::size_t>(i) * k, k);
    decode_codes(tensor.scheme.weight, code_row(tensor, row + i), values);
    if (tensor.scheme.scale) {
      scale_row(tensor, row + i, values);
    } else if (tensor.global_scale != 1.0F) {
      for (float& value : values) value *= tensor.global_scale;
    }
  }
  return {};
}

}  // namespace fewbit
