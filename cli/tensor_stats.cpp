// SPDX-License-Identifier: Apache-2.0
#include "tensor_stats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "canonical/gguf_blocks.hpp"
#include "checkpoint/gguf_types.hpp"
#include "core/convert.hpp"

namespace fewbit::cli {
namespace {

constexpr std::size_t chunk_elements = 1 << 16;

// The smallest piece that can be decoded by itself: an element or a block.
struct Unit {
  std::size_t bytes = 0;
  std::size_t elements = 1;
  const GgufType* block = nullptr;
};

Result<Unit> unit_of(const TensorView& view, const std::optional<BlockFormat>& blocks) {
  if (blocks) {
    const GgufType* type = find_gguf_type(blocks->ggml_type, blocks->block_elements);
    if (type == nullptr || type->elements == 0) {
      return Error{ErrorCode::unsupported,
                   gguf_type_name(blocks->ggml_type) + " has no known blocks", ""};
    }
    return Unit{static_cast<std::size_t>(type->bytes), static_cast<std::size_t>(type->elements),
                type};
  }
  const int bits = dtype_bits(view.dtype);
  if (bits % 8 != 0) {
    return Error{ErrorCode::unsupported,
                 std::string(dtype_name(view.dtype)) + " holds packed codes, not values", ""};
  }
  return Unit{static_cast<std::size_t>(bits / 8), 1, nullptr};
}

}  // namespace

StatsSum::StatsSum() {
  stats_.min = std::numeric_limits<double>::infinity();
  stats_.max = -stats_.min;
}

template <class T>
void StatsSum::add_all(std::span<const T> values) {
  stats_.elements += static_cast<std::int64_t>(values.size());
  for (const T x : values) {
    if (!std::isfinite(x)) {
      ++(std::isnan(x) ? stats_.nan : stats_.infinite);
      continue;
    }
    const auto value = static_cast<double>(x);
    sum_ += value;
    squares_ += static_cast<long double>(value) * value;
    ++stats_.finite;
    stats_.min = std::min(stats_.min, value);
    stats_.max = std::max(stats_.max, value);
    if (std::signbit(x)) ++stats_.negative;
    if (x == 0) {
      ++stats_.zero;
      continue;
    }
    ++stats_.by_exponent[static_cast<std::size_t>(std::ilogb(x) - TensorStats::first_exponent)];
  }
}

void StatsSum::add(std::span<const float> values) { add_all(values); }
void StatsSum::add(std::span<const double> values) { add_all(values); }

TensorStats StatsSum::finish() {
  if (stats_.finite == 0) {
    stats_.min = stats_.max = 0;
    return stats_;
  }
  const auto count = static_cast<long double>(stats_.finite);
  stats_.mean = static_cast<double>(sum_ / count);
  stats_.rms = static_cast<double>(std::sqrt(squares_ / count));
  return stats_;
}

namespace {

TensorStats f64_stats(std::span<const std::byte> bytes) {
  StatsSum sum;
  std::vector<double> values(chunk_elements);
  while (bytes.size() >= sizeof(double)) {
    const std::size_t count = std::min(values.size(), bytes.size() / sizeof(double));
    std::memcpy(values.data(), bytes.data(), count * sizeof(double));
    sum.add(std::span<const double>(values.data(), count));
    bytes = bytes.subspan(count * sizeof(double));
  }
  return sum.finish();
}

}  // namespace

static Result<void> add_matrix(const QuantizedTensor& matrix, StatsSum& sum) {
  std::vector<float> values;
  const auto chunk = static_cast<std::int64_t>(chunk_elements);
  const std::int64_t rows = std::clamp<std::int64_t>(chunk / matrix.k, 1, matrix.n);
  for (std::int64_t row = 0; row < matrix.n; row += rows) {
    const std::int64_t count = std::min(rows, matrix.n - row);
    values.resize(static_cast<std::size_t>(count * matrix.k));
    FEWBIT_TRY(dequantize_rows(matrix, row, values));
    sum.add(std::span<const float>(values));
  }
  return {};
}

Result<TensorStats> matrix_stats(const QuantizedTensor& matrix) {
  StatsSum sum;
  FEWBIT_TRY(add_matrix(matrix, sum));
  return sum.finish();
}

Result<TensorStats> decoded_stats(const Checkpoint& checkpoint, const Module& module) {
  StatsSum sum;
  const bool fused = module.experts > 0;
  for (std::int64_t e = 0; e < std::max<std::int64_t>(module.experts, 1); ++e) {
    FEWBIT_TRY(const QuantizedTensor matrix, canonicalize(checkpoint, module, fused ? e : -1));
    FEWBIT_TRY(add_matrix(matrix, sum));
  }
  return sum.finish();
}

Result<TensorStats> tensor_stats(const TensorView& view, const std::optional<BlockFormat>& blocks) {
  FEWBIT_TRY(const Unit unit, unit_of(view, blocks));
  if (!blocks && view.dtype == DType::f64) return f64_stats(view.bytes);
  const std::size_t chunk_bytes = chunk_elements / unit.elements * unit.bytes;
  StatsSum sum;
  std::vector<float> values(chunk_elements);
  for (std::size_t at = 0; at < view.bytes.size(); at += chunk_bytes) {
    const auto bytes = view.bytes.subspan(at, std::min(chunk_bytes, view.bytes.size() - at));
    const std::span<float> out(values.data(), bytes.size() / unit.bytes * unit.elements);
    if (unit.block != nullptr) {
      FEWBIT_TRY(decode_gguf_blocks(*unit.block, bytes, out));
    } else {
      FEWBIT_TRY(convert_to_f32(view.dtype, bytes, out));
    }
    sum.add(std::span<const float>(out));
  }
  return sum.finish();
}

Json stats_json(const TensorStats& stats) {
  Json histogram{Json::Array{}};
  for (std::size_t i = 0; i < stats.by_exponent.size(); ++i) {
    if (stats.by_exponent[i] == 0) continue;
    Json bucket;
    bucket.set("exponent", TensorStats::first_exponent + static_cast<int>(i));
    bucket.set("count", stats.by_exponent[i]);
    histogram.push_back(bucket);
  }
  Json out;
  out.set("elements", stats.elements);
  out.set("nan", stats.nan);
  out.set("infinite", stats.infinite);
  out.set("zero", stats.zero);
  out.set("negative", stats.negative);
  const auto number = [&](double value) { return stats.finite > 0 ? Json(value) : Json(nullptr); };
  out.set("min", number(stats.min));
  out.set("max", number(stats.max));
  out.set("mean", number(stats.mean));
  out.set("rms", number(stats.rms));
  out.set("histogram_log2", histogram);
  return out;
}

std::string stats_text(const TensorStats& stats) {
  std::string text = stats.finite == 0 ? "no finite value\n"
                                       : fmt::format("min {:g}  max {:g}  mean {:g}  rms {:g}\n",
                                                     stats.min, stats.max, stats.mean, stats.rms);
  text += fmt::format("{} elements: {} zero, {} negative, {} NaN, {} infinite\n", stats.elements,
                      stats.zero, stats.negative, stats.nan, stats.infinite);
  if (stats.finite > stats.zero) text += "magnitudes\n" + histogram_text(stats);
  return text;
}

std::string histogram_text(const TensorStats& stats) {
  constexpr std::size_t most_lines = 64;
  struct Line {
    std::string label;
    std::int64_t count = 0;
  };
  std::vector<Line> lines;  // largest exponent first
  for (std::size_t i = stats.by_exponent.size(); i-- > 0;) {
    const std::int64_t count = stats.by_exponent[i];
    if (count == 0) continue;
    const int exponent = TensorStats::first_exponent + static_cast<int>(i);
    if (lines.size() < most_lines) {
      lines.push_back({fmt::format("2^{}", exponent), count});
    } else {
      if (lines.size() == most_lines) lines.push_back({fmt::format("<2^{}", exponent + 1), 0});
      lines.back().count += count;
    }
  }
  const auto most = std::ranges::max_element(lines, {}, &Line::count);
  std::string out;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const auto bar = static_cast<std::size_t>(
        1 + static_cast<double>(line->count) * 39 /
                static_cast<double>(std::max<std::int64_t>(most->count, 1)));
    out += fmt::format("  {:<7} {:>10}  {}\n", line->label, line->count, std::string(bar, '#'));
  }
  return out;
}

}  // namespace fewbit::cli
