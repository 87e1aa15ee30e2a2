// SPDX-License-Identifier: Apache-2.0
#include "quantize/sglang_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "core/checked.hpp"
#include "core/float_convert.hpp"

namespace fewbit::sglang {
namespace {

constexpr std::array<std::pair<std::string_view, IntegerType>, 8> types = {{
    {"uint4", {0, 15, 0}},
    {"uint8", {0, 255, 0}},
    {"int4", {-8, 7, 0}},
    {"int8", {-128, 127, 0}},
    {"uint4b8", {-8, 7, 8}},
    {"uint8b128", {-128, 127, 128}},
    {"uint2b2", {-2, 1, 2}},
    {"uint3b4", {-4, 3, 4}},
}};

Error bad(std::string what) { return Error{ErrorCode::invalid_argument, std::move(what), ""}; }

// Rounds an f32 result to the type that the weights are computed in.
class Rounding {
 public:
  explicit Rounding(DType dtype) : dtype_(dtype) {}
  float operator()(float value) const {
    if (dtype_ == DType::f16) return f16_to_f32(f32_to_f16(value));
    if (dtype_ == DType::bf16) return bf16_to_f32(f32_to_bf16(value));
    return value;
  }

 private:
  DType dtype_;
};

struct Group {
  float scale = 1.0F;
  float zero = 0.0F;
};

Group group_of(float least, float most, const QuantizeOptions& options, const Rounding& rounded) {
  const auto top = static_cast<float>(options.type.most);
  const auto bottom = static_cast<float>(options.type.least);
  Group group;
  if (!options.zero_points) {
    const float up = top == 0.0F ? 0.0F : std::fabs(rounded(most / top));
    const float down = bottom == 0.0F ? 0.0F : std::fabs(rounded(least / bottom));
    group.scale = std::max(up, down);
    return group;
  }
  if (options.range == ZeroPointRange::with_zero) {
    least = std::min(least, 0.0F);
    most = std::max(most, 0.0F);
  }
  const float range = std::max(rounded(most - least), rounded(1e-5F));
  group.scale = rounded(range / top);
  group.zero = std::clamp(std::nearbyint(std::fabs(rounded(least / group.scale))), bottom, top);
  return group;
}

// The value of a code before bias, zero point included.
float quantized(float w, const Group& group, const IntegerType& type, const Rounding& rounded) {
  const float steps = group.scale == 0.0F ? 0.0F : std::nearbyint(rounded(w / group.scale));
  return std::clamp(steps + group.zero, static_cast<float>(type.least),
                    static_cast<float>(type.most));
}

float reference_of(float value, const Group& group, bool after, const Rounding& rounded) {
  if (!after) return rounded(rounded(value - group.zero) * group.scale);
  return rounded(rounded(value * group.scale) - rounded(group.zero * group.scale));
}

struct Extent {
  std::size_t k;
  std::size_t n;
  std::size_t group;  // rows
};

Result<Extent> check_input(std::span<const float> w, MatrixSize size, DType dtype,
                           const QuantizeOptions& options) {
  const auto count = checked_mul(size.rows, size.columns);
  if (size.rows < 1 || size.columns < 1 || !count ||
      static_cast<std::uint64_t>(*count) != w.size()) {
    return bad(fmt::format("{} weights, expected [{}, {}]", w.size(), size.rows, size.columns));
  }
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) {
    return bad(fmt::format("weights are {}, expected f32, f16 or bf16", dtype_name(dtype)));
  }
  if (options.zero_points && (!options.group_size || options.type.least < 0)) {
    return bad("zero points need groups and an unsigned type without bias");
  }
  std::int64_t group = options.group_size.value_or(-1);
  if (group == -1 || group > size.rows) group = size.rows;
  if (group < 1 || size.rows % group != 0) {
    return bad(fmt::format("{} rows are no whole groups of {}", size.rows, group));
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (!std::isfinite(w[i])) return bad(fmt::format("weight {} is {}", i, w[i]));
  }
  return Extent{static_cast<std::size_t>(size.rows), static_cast<std::size_t>(size.columns),
                static_cast<std::size_t>(group)};
}

void quantize_column(std::span<const float> w, const Extent& extent, std::size_t first_row,
                     std::size_t column, const QuantizeOptions& options, DType dtype,
                     QuantizedWeights& out) {
  const Rounding rounded(dtype);
  const auto at = [&](std::size_t row) { return (first_row + row) * extent.n + column; };
  Group group;
  if (options.group_size) {
    float least = w[at(0)];
    float most = least;
    for (std::size_t row = 1; row < extent.group; ++row) {
      least = std::min(least, w[at(row)]);
      most = std::max(most, w[at(row)]);
    }
    group = group_of(least, most, options, rounded);
    out.scales.push_back(group.scale);
    if (options.zero_points) out.zeros.push_back(static_cast<std::int32_t>(group.zero));
  }
  for (std::size_t row = 0; row < extent.group; ++row) {
    const float value = quantized(w[at(row)], group, options.type, rounded);
    out.codes[at(row)] = static_cast<std::int32_t>(value) + options.type.bias;
    out.reference[at(row)] = reference_of(value, group, options.zeros_after_scales, rounded);
  }
}

// Rows in a new order.
template <class T>
std::vector<T> moved(const std::vector<T>& rows, std::span<const std::int64_t> order) {
  const std::size_t width = rows.size() / order.size();
  std::vector<T> out;
  out.reserve(rows.size());
  for (const std::int64_t row : order) {
    const auto begin = rows.begin() + row * static_cast<std::int64_t>(width);
    out.insert(out.end(), begin, begin + static_cast<std::int64_t>(width));
  }
  return out;
}

Result<void> check_order(std::span<const std::int64_t> order, std::int64_t k) {
  std::vector<bool> seen(static_cast<std::size_t>(k));
  for (const std::int64_t row : order) {
    if (row < 0 || row >= k || seen[static_cast<std::size_t>(row)]) {
      return bad(fmt::format("row {} stands twice or is outside 0 to {}", row, k - 1));
    }
    seen[static_cast<std::size_t>(row)] = true;
  }
  if (static_cast<std::int64_t>(order.size()) == k) return {};
  return bad(fmt::format("an order of {} rows, expected {}", order.size(), k));
}

}  // namespace

Result<IntegerType> integer_type(std::string_view name) {
  std::string known;
  for (const auto& [each, type] : types) {
    if (each == name) return type;
    known += (known.empty() ? "" : ", ") + std::string(each);
  }
  return Error{ErrorCode::not_found, fmt::format("no integer type '{}'; known: {}", name, known),
               ""};
}

Result<QuantizedWeights> quantize_weights(std::span<const float> w, MatrixSize size, DType dtype,
                                          const QuantizeOptions& options) {
  FEWBIT_TRY(const Extent extent, check_input(w, size, dtype, options));
  QuantizedWeights out;
  // Without scales the unit scale is f32, and so is everything multiplied by it.
  out.reference_dtype = options.group_size ? dtype : DType::f32;
  out.codes.resize(w.size());
  out.reference.resize(w.size());
  for (std::size_t row = 0; row < extent.k; row += extent.group) {
    for (std::size_t column = 0; column < extent.n; ++column) {
      quantize_column(w, extent, row, column, options, out.reference_dtype, out);
    }
  }
  return out;
}

Result<OrderedWeights> gptq_quantize_weights(std::span<const float> w, MatrixSize size, DType dtype,
                                             std::string_view type, std::int64_t group_size,
                                             std::span<const std::int64_t> order) {
  if (type != "uint4b8" && type != "uint8b128") {
    return bad(fmt::format("type '{}', expected uint4b8 or uint8b128", type));
  }
  constexpr std::array<std::int64_t, 4> known = {-1, 32, 64, 128};
  if (std::find(known.begin(), known.end(), group_size) == known.end() && group_size != size.rows) {
    return bad(fmt::format("groups of {}, expected -1, 32, 64, 128 or {}", group_size, size.rows));
  }
  QuantizeOptions options;
  FEWBIT_TRY(options.type, integer_type(type));
  options.group_size = group_size;
  OrderedWeights out;
  FEWBIT_TRY(out.weights, quantize_weights(w, size, dtype, options));
  if (order.empty()) return out;
  if (group_size == -1 || group_size >= size.rows) {
    return bad(fmt::format("an order of rows with one group of {}", size.rows));
  }
  FEWBIT_TRY(check_order(order, size.rows));
  out.weights.codes = moved(out.weights.codes, order);
  out.weights.reference = moved(out.weights.reference, order);
  for (const std::int64_t row : order) {
    out.g_idx.push_back(static_cast<std::int32_t>(row / group_size));
  }
  return out;
}

}  // namespace fewbit::sglang
