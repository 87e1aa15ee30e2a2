// SPDX-License-Identifier: Apache-2.0
#include "tensor_stats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "canonical/gguf_blocks.hpp"
#include "checkpoint/gguf_types.hpp"
#include "core/convert.hpp"
#include "fewbit/quantized.hpp"

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

void StatsSum::add(std::span<const float> values) {
  stats_.elements += static_cast<std::int64_t>(values.size());
  for (const float x : values) {
    if (!std::isfinite(x)) {
      ++(std::isnan(x) ? stats_.nan : stats_.infinite);
      continue;
    }
    const auto value = static_cast<double>(x);
    sum_ += value;
    squares_ += value * value;
    ++finite_;
    stats_.min = std::min(stats_.min, value);
    stats_.max = std::max(stats_.max, value);
    if (std::signbit(x)) ++stats_.negative;
    if (x == 0) {
      ++stats_.zero;
      continue;
    }
    const int bucket = std::clamp(std::ilogb(x) - TensorStats::first_exponent, 0,
                                  static_cast<int>(stats_.by_exponent.size()) - 1);
    ++stats_.by_exponent[static_cast<std::size_t>(bucket)];
  }
}

TensorStats StatsSum::finish() {
  if (finite_ == 0) {
    stats_.min = stats_.max = 0;
    return stats_;
  }
  stats_.mean = sum_ / static_cast<double>(finite_);
  stats_.rms = std::sqrt(squares_ / static_cast<double>(finite_));
  return stats_;
}

Result<TensorStats> decoded_stats(const Checkpoint& checkpoint, const Module& module) {
  StatsSum sum;
  const bool fused = module.experts > 0;
  std::vector<float> values;
  for (std::int64_t e = 0; e < std::max<std::int64_t>(module.experts, 1); ++e) {
    FEWBIT_TRY(const QuantizedTensor matrix, canonicalize(checkpoint, module, fused ? e : -1));
    const auto chunk = static_cast<std::int64_t>(chunk_elements);
    const std::int64_t rows = std::clamp<std::int64_t>(chunk / matrix.k, 1, matrix.n);
    for (std::int64_t row = 0; row < matrix.n; row += rows) {
      const std::int64_t count = std::min(rows, matrix.n - row);
      values.resize(static_cast<std::size_t>(count * matrix.k));
      FEWBIT_TRY(dequantize_rows(matrix, row, values));
      sum.add(values);
    }
  }
  return sum.finish();
}

Result<TensorStats> tensor_stats(const TensorView& view, const std::optional<BlockFormat>& blocks) {
  FEWBIT_TRY(const Unit unit, unit_of(view, blocks));
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
    sum.add(out);
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
  out.set("min", stats.min);
  out.set("max", stats.max);
  out.set("mean", stats.mean);
  out.set("rms", stats.rms);
  out.set("histogram_log2", histogram);
  return out;
}

std::string histogram_text(const TensorStats& stats) {
  const std::int64_t most = *std::max_element(stats.by_exponent.begin(), stats.by_exponent.end());
  std::string out;
  for (std::size_t i = 0; i < stats.by_exponent.size(); ++i) {
    const std::int64_t count = stats.by_exponent[i];
    if (count == 0) continue;
    const auto bar = static_cast<std::size_t>(1 + count * 39 / most);
    out += fmt::format("  2^{:<4} {:>10}  {}\n", TensorStats::first_exponent + static_cast<int>(i),
                       count, std::string(bar, '#'));
  }
  return out;
}

}  // namespace fewbit::cli
