// SPDX-License-Identifier: Apache-2.0
// Streams a checkpoint through quantization: matrices side by side, memory bounded by the threads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "checkpoint/prepared_folder.hpp"
#include "quantize/complete.hpp"
#include "quantize/quantize_files.hpp"
#include "quantize/quantize_matrix.hpp"
#include "quantize/quantize_plan.hpp"

namespace fewbit {
namespace {

class Job {
 public:
  Job(const Checkpoint& source, const QuantizeOptions& options, Executor& executor,
      const QuantizePlan& plan, CheckpointWriter& writer)
      : source_(source), options_(options), executor_(executor), plan_(plan), writer_(writer) {}

  Result<QuantizeReport> run() {
    FEWBIT_TRY(quantize());
    FEWBIT_TRY(copy_kept());
    FEWBIT_TRY(write_quantized_files(source_, plan_, writer_));
    report_.quantized_tensors = plan_.quantized_tensors;
    report_.kept_tensors = static_cast<std::int64_t>(plan_.kept.size());
    report_.source_bytes = source_.total_bytes();
    for (const TensorSpec& spec : plan_.outputs) {
      FEWBIT_TRY(const std::uint64_t bytes, tensor_bytes(spec.dtype, spec.shape));
      report_.output_bytes += bytes;
    }
    report_.relative_error =
        weight_squares_ > 0 ? std::sqrt(error_squares_ / weight_squares_) : 0.0;
    return report_;
  }

 private:
  // Progress and cancelling happen between batches, on the caller's thread.
  Result<void> quantize() {
    const auto batch = static_cast<std::size_t>(std::max(executor_.threads(), 1)) * 4;
    for (std::size_t first = 0; first < plan_.jobs.size(); first += batch) {
      const std::size_t count = std::min(batch, plan_.jobs.size() - first);
      FEWBIT_TRY(quantize_batch(std::span(plan_.jobs).subspan(first, count)));
    }
    return {};
  }

  Result<void> quantize_batch(std::span<const SharedJobs> jobs) {
    std::vector<std::optional<Result<std::vector<MatrixResult>>>> results(jobs.size());
    parallel_for(executor_, static_cast<int>(jobs.size()), [&](int i) {
      const auto at = static_cast<std::size_t>(i);
      results[at].emplace(quantize_matrices(source_, jobs[at], writer_));
    });
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      FEWBIT_TRY(const std::vector<MatrixResult> group, *std::move(results[i]));
      for (std::size_t j = 0; j < group.size(); ++j) {
        FEWBIT_TRY(judge(jobs[i], group, j));
        const MatrixJob& job = jobs[i][j];
        const auto values = static_cast<std::uint64_t>(job.n * job.k);
        bytes += values * static_cast<std::uint64_t>(dtype_bits(job.source->dtype)) / 8;
        source_.release(*job.source);
      }
    }
    return advance(bytes);
  }

  // One huge weight sets the global scale, and nothing may be left of all others.
  Result<void> judge(const SharedJobs& jobs, std::span<const MatrixResult> group, std::size_t at) {
    const MatrixResult& result = group[at];
    report_.erased_blocks += result.erased_blocks;
    report_.clamped_scales += result.clamped_scales;
    error_squares_ += result.error_squares;
    weight_squares_ += result.weight_squares;
    std::string name = name_of(jobs[at]);
    if (!options_.allow_erased && result.erased_blocks * 2 > result.nonzero_blocks) {
      const auto largest = std::max_element(
          group.begin(), group.end(),
          [](const auto& a, const auto& b) { return a.largest_weight < b.largest_weight; });
      return Error{ErrorCode::corrupt,
                   fmt::format("{} of {} blocks with weights would become zero, at most half may "
                               "(the largest weight, {:.3g} in {}, dwarfs the others; "
                               "allow_erased takes it)",
                               result.erased_blocks, result.nonzero_blocks, largest->largest_weight,
                               name_of(jobs[static_cast<std::size_t>(largest - group.begin())])),
                   name};
    }
    if (report_.worst.name.empty() || result.block_error() > report_.worst.block_error) {
      report_.worst = {std::move(name), result.block_error(), result.erased_share()};
    }
    return {};
  }

  static std::string name_of(const MatrixJob& job) {
    const bool one_of_many = job.source->shape.size() == 3;
    return job.source->name + (one_of_many ? fmt::format(" of expert {}", job.slice) : "");
  }

  Result<void> copy_kept() {
    for (const TensorInfo* info : plan_.kept) {
      FEWBIT_TRY(writer_.write(info->name, source_.tensor(*info).view.bytes));
      source_.release(*info);
      FEWBIT_TRY(advance(info->bytes));
    }
    return {};
  }

  Result<void> advance(std::uint64_t bytes) {
    done_ += bytes;
    if (!options_.progress || options_.progress(done_, source_.total_bytes())) return {};
    return Error{ErrorCode::cancelled,
                 fmt::format("stopped after {} of {} bytes", done_, source_.total_bytes()), ""};
  }

  const Checkpoint& source_;
  const QuantizeOptions& options_;
  Executor& executor_;
  const QuantizePlan& plan_;
  CheckpointWriter& writer_;
  QuantizeReport report_;
  std::uint64_t done_ = 0;
  double error_squares_ = 0;
  double weight_squares_ = 0;
};

}  // namespace

Result<QuantizeReport> quantize_checkpoint(const Checkpoint& source,
                                           const std::filesystem::path& output,
                                           const QuantizeOptions& options, Executor& executor) {
  if (options.scheme != "nvfp4") {
    return Error{ErrorCode::unsupported,
                 fmt::format("scheme is \"{}\", expected one of: nvfp4", options.scheme), ""};
  }
  FEWBIT_TRY(refuse_prepared(source.directory(), "quantize"));
  FEWBIT_TRY(const Identified identified, identify(source));
  FEWBIT_TRY(const QuantizePlan plan, plan_quantization(source, identified, options));
  FEWBIT_TRY(const std::optional<Error> scales, check_complete(source, identified));
  if (scales) return *scales;
  FEWBIT_TRY(check_kept(source, identified, plan.kept));
  WriterOptions writer_options;
  writer_options.max_shard_bytes = options.max_shard_bytes;
  FEWBIT_TRY(CheckpointWriter writer,
             CheckpointWriter::create(output, plan.outputs, writer_options));
  Job job(source, options, executor, plan, writer);
  FEWBIT_TRY(const QuantizeReport report, job.run());
  FEWBIT_TRY(writer.finish());
  return report;
}

}  // namespace fewbit
