// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/expert_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backends/cuda_moe/weight_cells.hpp"
#include "canonical/column_order.hpp"
#include "core/convert.hpp"
#include "core/float_convert.hpp"

namespace fewbit::cuda {
namespace {

const std::uint8_t* bytes_of(const Tensor& tensor) {
  return reinterpret_cast<const std::uint8_t*>(tensor.view.bytes.data());
}

// Which matrix has a half's rows, and from which row on.
struct HalfRows {
  const QuantizedTensor& tensor;
  std::int64_t first;
};
HalfRows rows_of(const ExpertWeights& expert, int matrix, int half, std::int64_t rows) {
  if (matrix == 1) return {expert.down, half * rows};
  if (!expert.gate) return {expert.up, half * rows};
  return {half == 0 ? *expert.gate : expert.up, 0};
}

// `count` rows of a matrix from `first` on in the order; empty: as they are.
struct TakenRows {
  std::span<const std::int32_t> order;
  std::int64_t first = 0;
  std::int64_t count = 0;

  std::int64_t at(std::int64_t i) const {
    return order.empty() ? first + i : order[static_cast<std::size_t>(first + i)];
  }
};

std::int32_t zero_at(const Tensor& zeros, std::int64_t i) {
  const std::byte* bytes = zeros.view.bytes.data();
  if (zeros.view.dtype == DType::i8) return static_cast<std::int8_t>(bytes[i]);
  if (zeros.view.dtype == DType::u8) return static_cast<std::uint8_t>(bytes[i]);
  std::int32_t value = 0;
  std::memcpy(&value, bytes + 4 * i, sizeof(value));
  return value;
}

// Zero points as the cells have them: from the smallest code of int4, 0 to 127; of int8 as signed
// codes have them.
Result<std::vector<std::uint8_t>> zero_bytes(const QuantizedTensor& tensor, std::int64_t groups,
                                             const TakenRows& rows) {
  const DType weight = tensor.scheme.weight;
  const bool four = dtype_bits(weight) == 4;
  const std::int64_t origin = weight == DType::i4 ? -8 : weight == DType::u8 ? 128 : 0;
  const std::int64_t least = four ? origin : origin - 128;
  std::vector<std::uint8_t> out;
  for (std::int64_t i = 0; i < rows.count * groups; ++i) {
    const std::int64_t zero =
        zero_at(tensor.zero_points, rows.at(i / groups) * groups + i % groups);
    if (zero < least || zero > origin + 127) {
      return Error{ErrorCode::unsupported,
                   fmt::format("zero point {}, expected {} to {}", zero, least, origin + 127), ""};
    }
    out.push_back(static_cast<std::uint8_t>(zero - origin));
  }
  return out;
}

}  // namespace

Result<std::vector<float>> scales_in_f32(const QuantizedTensor& tensor) {
  const TensorView& view = tensor.scales.view;
  std::vector<float> out(view.bytes.size() * 8 / static_cast<std::size_t>(dtype_bits(view.dtype)));
  FEWBIT_TRY(convert_to_f32(view.dtype, view.bytes, out));
  return out;
}

namespace {

Result<std::vector<std::int32_t>> order_of(const MoeProblem& problem,
                                           const QuantizedTensor& tensor) {
  auto order = column_order(tensor);
  if (!order) return Error{order.error().code, order.error().what, problem.where};
  return order;
}

// Rows of fc1 stand in the order of down's columns, so that what they give is in it. Empty: as they
// are.
Result<std::vector<std::int32_t>> row_order_of(const MoeProblem& problem,
                                               const ExpertWeights& expert, int matrix) {
  if (matrix == 1 || !is_ordered(problem.down)) return std::vector<std::int32_t>();
  return order_of(problem, expert.down);
}

// Rows of `bytes` each.
std::vector<std::byte> take_rows(std::span<const std::byte> from, std::size_t bytes,
                                 const TakenRows& rows) {
  std::vector<std::byte> out(bytes * static_cast<std::size_t>(rows.count));
  for (std::int64_t r = 0; r < rows.count; ++r) {
    std::memcpy(out.data() + static_cast<std::size_t>(r) * bytes,
                from.data() + static_cast<std::size_t>(rows.at(r)) * bytes, bytes);
  }
  return out;
}

// Codes of a half in the orders of rows and columns, where there are any.
Result<void> order_half(const QuantizedTensor& tensor, const TakenRows& rows, int half,
                        IntParts& parts) {
  CudaIntSource& source = parts.source;
  const auto row_bytes = static_cast<std::size_t>(source.row_bytes());
  source.codes[half] = bytes_of(tensor.codes) + rows.first * source.row_bytes();
  if (rows.order.empty() && !is_ordered(tensor.scheme)) return {};
  const std::vector<std::byte> taken = take_rows(tensor.codes.view.bytes, row_bytes, rows);
  if (is_ordered(tensor.scheme)) {
    FEWBIT_TRY(const std::vector<std::int32_t> columns, column_order(tensor));
    parts.codes[half] = order_codes(source.bits, source.rows, taken, columns);
  } else {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(taken.data());
    parts.codes[half].assign(begin, begin + taken.size());
  }
  source.codes[half] = parts.codes[half].data();
  return {};
}

// Scales of a half in 16 bits: as they are; e4m3 as bf16; a scale of the tensor, which is a factor
// of the global one, as 1 a row.
std::vector<std::uint16_t> scale_words(const QuantizedTensor& tensor, std::size_t groups,
                                       const TakenRows& rows) {
  const ScaleSpec& scale = *tensor.scheme.scale;
  std::vector<std::uint16_t> words(groups * static_cast<std::size_t>(rows.count), f32_to_bf16(1));
  if (scale.granularity.rows == 0) return words;
  const bool bytes = scale.dtype == DType::f8_e4m3;
  const std::vector<std::byte> taken =
      take_rows(tensor.scales.view.bytes, (bytes ? 1 : 2) * groups, rows);
  if (!bytes) {
    std::memcpy(words.data(), taken.data(), taken.size());
    return words;
  }
  std::transform(taken.begin(), taken.end(), words.begin(), [](std::byte b) {
    return f32_to_bf16(f8_e4m3_to_f32(std::to_integer<std::uint8_t>(b)));
  });
  return words;
}

Result<void> fill_half(const QuantizedTensor& tensor, const TakenRows& rows, int half,
                       IntParts& parts) {
  CudaIntSource& source = parts.source;
  if (!tensor.offsets.empty()) {
    return Error{ErrorCode::unsupported, "offsets beside integer codes", ""};
  }
  FEWBIT_TRY(order_half(tensor, rows, half, parts));
  const auto groups = static_cast<std::size_t>(source.groups());
  parts.scales[half] = scale_words(tensor, groups, rows);
  source.scales[half] = parts.scales[half].data();
  if (!tensor.scheme.zero_points) return {};
  FEWBIT_TRY(parts.zeros[half], zero_bytes(tensor, source.groups(), rows));
  source.zeros[half] = parts.zeros[half].data();
  return {};
}

}  // namespace

Result<IntParts> int_parts_of(const MoeProblem& problem, const ExpertWeights& expert, int matrix) {
  const Dims half = matrix == 0 ? half1(problem) : half2(problem);
  const Scheme scheme = read_as(matrix == 0 ? problem.gate_up : problem.down);
  IntParts parts;
  CudaIntSource& source = parts.source;
  source.rows = half.n;
  source.depth = half.k;
  source.group = scheme.scale->granularity.cols;
  source.bits = dtype_bits(scheme.weight);
  source.flipped_bit = scheme.weight == DType::i4 ? 8 : scheme.weight == DType::u8 ? 128 : 0;
  FEWBIT_TRY(const std::vector<std::int32_t> order, row_order_of(problem, expert, matrix));
  for (int h = 0; h < 2; ++h) {
    const auto [tensor, row] = rows_of(expert, matrix, h, half.n);
    const Result<void> filled =
        fill_half(tensor, {.order = order, .first = row, .count = half.n}, h, parts);
    if (!filled) return Error{filled.error().code, filled.error().what, problem.where};
  }
  return parts;
}

Result<std::vector<std::int32_t>> hidden_order_of(const MoeProblem& problem,
                                                  const ExpertWeights& expert) {
  FEWBIT_TRY(std::vector<std::int32_t> order, order_of(problem, expert.up));
  if (!expert.gate) return order;
  FEWBIT_TRY(const std::vector<std::int32_t> of_gate, order_of(problem, *expert.gate));
  if (of_gate == order) return order;
  return Error{ErrorCode::invalid_argument, "gate and up have different act-orders", problem.where};
}

CudaF4Source source_of(const MoeProblem& problem, const ExpertWeights& expert, int matrix) {
  const Dims half = matrix == 0 ? half1(problem) : half2(problem);
  const std::int64_t group = format_of(problem).kind == CellKind::nvfp4 ? 16 : 32;
  CudaF4Source from{.rows = half.n, .depth = half.k};
  for (int h = 0; h < 2; ++h) {
    const auto [tensor, row] = rows_of(expert, matrix, h, half.n);
    from.codes[h] = bytes_of(tensor.codes) + row * (half.k / 2);
    from.scales[h] = bytes_of(tensor.scales) + row * (half.k / group);
  }
  return from;
}

Result<F8Parts> f8_parts_of(const MoeProblem& problem, const ExpertWeights& expert, int matrix) {
  const Dims half = matrix == 0 ? half1(problem) : half2(problem);
  F8Parts parts;
  CudaF8Source& source = parts.source;
  source.rows = half.n;
  source.depth = half.k;
  for (int h = 0; h < 2; ++h) {
    const auto [tensor, row] = rows_of(expert, matrix, h, half.n);
    source.codes[h] = bytes_of(tensor.codes) + row * half.k;
    source.first_row[h] = row;
    const CellFormat format = format_of(problem);
    if (format.kind == CellKind::mxfp8) {
      source.mx_scales[h] = bytes_of(tensor.scales) + row * (half.k / 32);
      continue;
    }
    if (format.f8 != F8Scales::block) continue;
    FEWBIT_TRY(parts.scales[h], scales_in_f32(tensor));
    source.scales[h] = parts.scales[h].data();
  }
  return parts;
}

Result<std::vector<float>> row_scales_of(const ExpertWeights& expert) {
  std::vector<float> out;
  if (expert.gate) {
    FEWBIT_TRY(out, scales_in_f32(*expert.gate));
  }
  for (const QuantizedTensor* tensor : {&expert.up, &expert.down}) {
    FEWBIT_TRY(const std::vector<float> scales, scales_in_f32(*tensor));
    out.insert(out.end(), scales.begin(), scales.end());
  }
  return out;
}

Error nan_code(const MoeProblem& problem) {
  return Error{ErrorCode::unsupported, "e4m3 codes that are NaN", problem.where};
}

Result<float> global_of(const QuantizedTensor& tensor) {
  const Scheme& scheme = tensor.scheme;
  if (scheme.scale->granularity.rows != 0) return tensor.global_scale;
  FEWBIT_TRY(const std::vector<float> scales, scales_in_f32(tensor));
  return tensor.global_scale * scales.front();
}

Result<std::array<float, 3>> globals_of(const ExpertWeights& expert) {
  std::array<float, 3> out{};
  FEWBIT_TRY(out[0], global_of(expert.gate ? *expert.gate : expert.up));
  FEWBIT_TRY(out[1], global_of(expert.up));
  FEWBIT_TRY(out[2], global_of(expert.down));
  return out;
}

std::int64_t bias_count(const MoeProblem& problem) {
  return 2 * half1(problem).n + problem.hidden_size;
}

Result<std::vector<float>> biases_of(const MoeProblem& problem, const ExpertWeights& expert) {
  std::vector<float> out;
  const auto add = [&](const char* name, const std::vector<float>& bias, std::int64_t size,
                       const std::vector<std::int32_t>& rows) -> Result<void> {
    if (!bias.empty() && std::ssize(bias) != size) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("{} bias of {} values, expected {}", name, bias.size(), size),
                   problem.where};
    }
    for (std::size_t i = 0; i < bias.size(); ++i) {
      out.push_back(bias[rows.empty() ? i : static_cast<std::size_t>(rows[i])]);
    }
    if (bias.empty()) out.resize(out.size() + static_cast<std::size_t>(size));
    return {};
  };
  FEWBIT_TRY(const std::vector<std::int32_t> order, row_order_of(problem, expert, 0));
  if (expert.gate) FEWBIT_TRY(add("gate", expert.gate_bias, problem.intermediate_size, order));
  FEWBIT_TRY(add("up", expert.up_bias, problem.intermediate_size, order));
  FEWBIT_TRY(add("down", expert.down_bias, problem.hidden_size, {}));
  return out;
}

void add_scales(const QuantizedTensor& tensor, ScaleRange& range) {
  for (const std::byte b : tensor.scales.view.bytes) {
    const auto scale = static_cast<std::uint8_t>(b);
    if (scale == 0) continue;
    range.least = std::min(range.least, scale);
    range.most = std::max(range.most, scale);
  }
}

ScaleRange scale_range(const ExpertWeights& expert) {
  ScaleRange range;
  if (expert.gate) add_scales(*expert.gate, range);
  add_scales(expert.up, range);
  add_scales(expert.down, range);
  return range;
}

bool grouped_takes(const MoeProblem& problem, const ScaleRange& range) {
  if (format_of(problem).kind != CellKind::mxfp4) return true;
  return range.most == 0 || (range.least >= grouped_least_e8m0 && range.most <= grouped_most_e8m0);
}

}  // namespace fewbit::cuda
