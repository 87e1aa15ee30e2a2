// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantize_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "canonical/transpose.hpp"
#include "core/convert.hpp"
#include "quantize/nvfp4.hpp"

namespace fewbit {
namespace {

// Values of one piece.
constexpr std::int64_t piece_values = std::int64_t{1} << 18;

std::size_t width_of(const TensorView& view) {
  return static_cast<std::size_t>(dtype_bits(view.dtype)) / 8;
}

std::span<const std::byte> stored_values(const TensorView& view, std::int64_t first,
                                         std::int64_t values) {
  return view.bytes.subspan(static_cast<std::size_t>(first) * width_of(view),
                            static_cast<std::size_t>(values) * width_of(view));
}

// In the order of the file, whichever that is, for the places in errors.
Result<float> find_amax(const MatrixJob& job, const TensorView& source) {
  const std::int64_t rows = job.transposed ? job.k : job.n;
  const std::int64_t columns = job.transposed ? job.n : job.k;
  const std::int64_t step = std::clamp<std::int64_t>(piece_values / columns, 1, rows);
  std::vector<float> values(static_cast<std::size_t>(step * columns));
  float amax = 0.0F;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t first = job.slice * rows + row;
    const std::int64_t piece = std::min(step, rows - row) * columns;
    const std::span<float> out = std::span(values).first(static_cast<std::size_t>(piece));
    FEWBIT_TRY(convert_to_f32(source.dtype, stored_values(source, first * columns, piece), out));
    FEWBIT_TRY(const float found, finite_amax(columns, first, out));
    amax = std::max(amax, found);
  }
  return amax;
}

class MatrixQuantizer {
 public:
  MatrixQuantizer(const MatrixJob& job, Tensor source, float global)
      : job_(job),
        source_(std::move(source)),
        width_(width_of(source_.view)),
        rows_(std::clamp<std::int64_t>(piece_values / job.k, 1, job.n)),
        global_(global) {
    weights_.resize(static_cast<std::size_t>(rows_ * job.k));
    decoded_.resize(weights_.size());
    // What is written the other way round is written as a whole.
    const std::size_t kept =
        job.transposed ? static_cast<std::size_t>(job.n * job.k) : weights_.size();
    codes_.resize(kept / 2);
    scales_.resize(kept / nvfp4_group_size);
  }

  Result<MatrixResult> run(CheckpointWriter& writer) {
    MatrixResult result;
    for (std::int64_t row = 0; row < job_.n; row += rows_) {
      FEWBIT_TRY(quantize_piece(row, writer, result));
    }
    if (job_.transposed) FEWBIT_TRY(write_transposed(writer));
    FEWBIT_TRY(writer.write(job_.global, std::as_bytes(std::span(&global_, 1)),
                            static_cast<std::uint64_t>(job_.slice) * sizeof(float)));
    return result;
  }

 private:
  std::int64_t count(std::int64_t row) const { return std::min(rows_, job_.n - row); }

  std::span<const std::byte> stored(std::int64_t first, std::int64_t values) const {
    return stored_values(source_.view, first, values);
  }

  Result<std::span<const float>> load(std::int64_t row) {
    const std::int64_t values = count(row) * job_.k;
    const std::span<float> out = std::span(weights_).first(static_cast<std::size_t>(values));
    if (job_.transposed) {
      FEWBIT_TRY(const Tensor rows, gather_rows(row));
      FEWBIT_TRY(convert_to_f32(rows.view.dtype, rows.view.bytes, out));
    } else {
      const std::int64_t first = (job_.slice * job_.n + row) * job_.k;
      FEWBIT_TRY(convert_to_f32(source_.view.dtype, stored(first, values), out));
    }
    return std::span<const float>(out);
  }

  // Columns of the stored matrix as rows.
  Result<Tensor> gather_rows(std::int64_t row) {
    const auto bytes = static_cast<std::size_t>(count(row)) * width_;
    gathered_.resize(static_cast<std::size_t>(job_.k) * bytes);
    for (std::int64_t k = 0; k < job_.k; ++k) {
      const auto from = stored((job_.slice * job_.k + k) * job_.n + row, count(row));
      std::memcpy(gathered_.data() + static_cast<std::size_t>(k) * bytes, from.data(), bytes);
    }
    return transposed_copy({{source_.view.dtype, {job_.k, count(row)}, gathered_, {}}, nullptr});
  }

  Result<void> quantize_piece(std::int64_t row, CheckpointWriter& writer, MatrixResult& result) {
    FEWBIT_TRY(const std::span<const float> weights, load(row));
    const std::size_t done = job_.transposed ? static_cast<std::size_t>(row * job_.k) : 0;
    const std::span<std::byte> codes = std::span(codes_).subspan(done / 2, weights.size() / 2);
    const std::span<std::byte> scales =
        std::span(scales_).subspan(done / nvfp4_group_size, weights.size() / nvfp4_group_size);
    Nvfp4Counts counts;
    quantize_nvfp4_rows(weights, global_, codes, scales, counts);
    result.erased_blocks += counts.erased_blocks;
    result.clamped_scales += counts.clamped_scales;
    FEWBIT_TRY(add_error(row, weights, codes, scales, result));
    if (job_.transposed) return {};
    const auto first = static_cast<std::uint64_t>(job_.slice * job_.n + row);
    const auto k = static_cast<std::uint64_t>(job_.k);
    FEWBIT_TRY(writer.write(job_.weight, codes, first * (k / 2)));
    return writer.write(job_.scale, scales, first * (k / nvfp4_group_size));
  }

  Result<void> write_transposed(CheckpointWriter& writer) {
    const auto write = [&](const std::string& name, std::span<const std::byte> rows,
                           std::int64_t columns) -> Result<void> {
      FEWBIT_TRY(const Tensor turned,
                 transposed_copy({{DType::u8, {job_.n, columns}, rows, {}}, nullptr}));
      return writer.write(name, turned.view.bytes,
                          static_cast<std::uint64_t>(job_.slice) * rows.size());
    };
    FEWBIT_TRY(write(job_.weight, codes_, job_.k / 2));
    return write(job_.scale, scales_, job_.k / nvfp4_group_size);
  }

  // Against what every reader of the result will compute.
  Result<void> add_error(std::int64_t row, std::span<const float> weights,
                         std::span<const std::byte> codes, std::span<const std::byte> scales,
                         MatrixResult& result) {
    Tensor code_tensor{{DType::u8, {count(row), job_.k / 2}, codes, {}}, nullptr};
    Tensor scale_tensor{{DType::f8_e4m3, {count(row), job_.k / nvfp4_group_size}, scales, {}},
                        nullptr};
    FEWBIT_TRY(const QuantizedTensor tensor, make_nvfp4(count(row), job_.k, std::move(code_tensor),
                                                        std::move(scale_tensor), global_));
    const std::span<float> decoded = std::span(decoded_).first(weights.size());
    FEWBIT_TRY(dequantize_rows(tensor, 0, decoded));
    for (std::size_t i = 0; i < weights.size(); i += nvfp4_group_size) {
      add_block(weights.subspan(i, nvfp4_group_size), decoded.subspan(i, nvfp4_group_size), result);
    }
    return {};
  }

  static void add_block(std::span<const float> weights, std::span<const float> decoded,
                        MatrixResult& result) {
    double error = 0;
    double size = 0;
    bool nonzero = false;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double w = weights[i];
      const double difference = w - static_cast<double>(decoded[i]);
      error += difference * difference;
      size += w * w;
      nonzero = nonzero || weights[i] != 0.0F;
    }
    result.error_squares += error;
    result.weight_squares += size;
    if (!nonzero) return;
    ++result.nonzero_blocks;
    result.block_errors += std::sqrt(error / size);
  }

  const MatrixJob& job_;
  Tensor source_;
  std::size_t width_;  // bytes of a stored value
  std::int64_t rows_;  // of a piece
  float global_;
  std::vector<float> weights_;
  std::vector<float> decoded_;
  std::vector<std::byte> gathered_;
  std::vector<std::byte> codes_;
  std::vector<std::byte> scales_;
};

template <typename T>
Result<T> named(Result<T> result, const MatrixJob& job) {
  if (result || !result.error().where.empty()) return result;
  return Error{result.error().code, result.error().what, job.source->name};
}

}  // namespace

Result<std::vector<MatrixResult>> quantize_matrices(const Checkpoint& source,
                                                    const SharedJobs& jobs,
                                                    CheckpointWriter& writer) {
  std::vector<float> largest;
  for (const MatrixJob& job : jobs) {
    FEWBIT_TRY(const float amax, named(find_amax(job, source.tensor(*job.source).view), job));
    largest.push_back(amax);
  }
  const float global = nvfp4_global_scale(*std::max_element(largest.begin(), largest.end()));
  std::vector<MatrixResult> results;
  for (const MatrixJob& job : jobs) {
    MatrixQuantizer quantizer(job, source.tensor(*job.source), global);
    FEWBIT_TRY(MatrixResult result, named(quantizer.run(writer), job));
    result.largest_weight = largest[results.size()];
    results.push_back(result);
  }
  return results;
}

}  // namespace fewbit
