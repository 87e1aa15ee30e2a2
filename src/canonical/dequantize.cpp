// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/checked.hpp"
#include "core/convert.hpp"
#include "core/float_convert.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t nvfp4_group = 16;

constexpr std::array<float, 16> e2m1_values = [] {
  std::array<float, 16> values{};
  for (std::uint8_t code = 0; code < 16; ++code) values[code] = f4_e2m1_to_f32(code);
  return values;
}();

bool is_nvfp4(const Scheme& scheme) {
  return scheme.weight == DType::f4_e2m1 && scheme.scale && scheme.scale->dtype == DType::f8_e4m3 &&
         scheme.scale->granularity == Granularity{.rows = 1, .cols = nvfp4_group} &&
         !scheme.zero_points && scheme.act_order == ActOrder::none;
}

bool is_plain(const Scheme& scheme) {
  return !scheme.scale && !scheme.zero_points && scheme.act_order == ActOrder::none &&
         (scheme.weight == DType::f32 || scheme.weight == DType::f16 ||
          scheme.weight == DType::bf16);
}

// One row of k values.
void dequantize_nvfp4_row(const QuantizedTensor& tensor, std::int64_t row, std::span<float> out) {
  const auto groups = static_cast<std::size_t>(ceil_div(tensor.k, nvfp4_group));
  const auto r = static_cast<std::size_t>(row);
  const auto codes = tensor.codes.view.bytes.subspan(r * out.size() / 2, out.size() / 2);
  const auto scales = tensor.scales.view.bytes.subspan(r * groups, groups);
  for (std::size_t group = 0; group < groups; ++group) {
    const float scale =
        f8_e4m3_to_f32(std::to_integer<std::uint8_t>(scales[group])) * tensor.global_scale;
    const std::size_t begin = group * nvfp4_group;
    const std::size_t end = std::min(begin + nvfp4_group, out.size());
    for (std::size_t i = begin; i < end; i += 2) {
      const auto pair = std::to_integer<std::uint8_t>(codes[i / 2]);
      out[i] = e2m1_values[pair & 0xF] * scale;
      out[i + 1] = e2m1_values[pair >> 4] * scale;
    }
  }
}

Error bad(std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), "dequantize_rows"};
}

}  // namespace

Result<void> dequantize_rows(const QuantizedTensor& tensor, std::int64_t row,
                             std::span<float> out) {
  const auto k = static_cast<std::size_t>(tensor.k);
  if (k == 0 || out.size() % k != 0) {
    return bad(fmt::format("{} elements are no whole rows of {}", out.size(), k));
  }
  const auto rows = static_cast<std::int64_t>(out.size() / k);
  if (row < 0 || row > tensor.n || rows > tensor.n - row) {
    return bad(fmt::format("{} rows from row {}, but the matrix has {}", rows, row, tensor.n));
  }
  if (is_nvfp4(tensor.scheme)) {
    for (std::int64_t i = 0; i < rows; ++i) {
      dequantize_nvfp4_row(tensor, row + i, out.subspan(static_cast<std::size_t>(i) * k, k));
    }
    return {};
  }
  if (!is_plain(tensor.scheme)) {
    return Error{ErrorCode::unsupported, "can't dequantize " + scheme_text(tensor.scheme),
                 "dequantize_rows"};
  }
  const auto row_bytes = k * static_cast<std::size_t>(dtype_bits(tensor.scheme.weight)) / 8;
  const auto bytes = tensor.codes.view.bytes.subspan(static_cast<std::size_t>(row) * row_bytes,
                                                     static_cast<std::size_t>(rows) * row_bytes);
  FEWBIT_TRY(convert_to_f32(tensor.scheme.weight, bytes, out));
  if (tensor.global_scale != 1.0F) {
    for (float& value : out) value *= tensor.global_scale;
  }
  return {};
}

}  // namespace fewbit
