// SPDX-License-Identifier: Apache-2.0
// Statistics of one tensor's values, as stored (codes of packed types count as bytes); GGUF blocks
// are decoded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "checkpoint/json.hpp"
#include "fewbit/checkpoint.hpp"
#include "fewbit/quantized.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit::cli {

struct TensorStats {
  std::int64_t elements = 0;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
  std::int64_t zero = 0;
  std::int64_t negative = 0;
  std::int64_t finite = 0;
  double min = 0;  // of the finite values; these four mean nothing without one
  double max = 0;
  double mean = 0;
  double rms = 0;
  // |x| of finite non-zero values by floor(log2 |x|): every exponent of a double has its place.
  static constexpr int first_exponent = -1074;
  std::array<std::int64_t, 1074 + 1024> by_exponent{};
};

// Adds values piece by piece.
class StatsSum {
 public:
  StatsSum();
  void add(std::span<const float> values);
  void add(std::span<const double> values);
  TensorStats finish();

 private:
  template <class T>
  void add_all(std::span<const T> values);

  TensorStats stats_;
  long double sum_ = 0;
  long double squares_ = 0;
};

// Of the weights of one matrix. Errors as dequantize_rows.
Result<TensorStats> matrix_stats(const QuantizedTensor& matrix);
// Of the weights that a quantized module stands for, all experts together. Errors as canonicalize.
Result<TensorStats> decoded_stats(const Checkpoint& checkpoint, const Module& module);

// Errors: unsupported for types without a value of their own (packed codes, integers over 32 bits,
// GGUF blocks that can't be decoded).
Result<TensorStats> tensor_stats(const TensorView& view, const std::optional<BlockFormat>& blocks);
Json stats_json(const TensorStats& stats);
// Lines: range, counts, and the histogram where there is anything to show.
std::string stats_text(const TensorStats& stats);
// Bars of by_exponent, one line a power of two; the smallest share one where there are very many.
std::string histogram_text(const TensorStats& stats);

}  // namespace fewbit::cli
