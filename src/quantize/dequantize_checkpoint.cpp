// SPDX-License-Identifier: Apache-2.0
// Streams a quantized checkpoint back to 16 or 32 bits, matrices side by side.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

#include "canonical/exact_rows.hpp"
#include "canonical/transpose.hpp"
#include "checkpoint/prepared_folder.hpp"
#include "core/convert.hpp"
#include "core/number_text.hpp"
#include "quantize/complete.hpp"
#include "quantize/decoded_output.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/scale_parts.hpp"

namespace fewbit {
namespace {

// Values decoded at a time by one thread.
constexpr std::int64_t piece_values = std::int64_t{1} << 20;

// One matrix: a module's, or one expert's of a fused module.
struct DecodeJob {
  const Module* module = nullptr;
  std::int64_t fused_expert = -1;
  std::string output;
};

struct DecodePlan {
  std::vector<DecodeJob> jobs;
  std::vector<const TensorInfo*> kept;
  std::vector<TensorSpec> outputs;
  std::int64_t decoded_tensors = 0;
};

// gpt-oss in 16 bits holds its experts under the module's own name, [experts, in, out].
bool is_gpt_oss(const Module& module) { return module.scheme.packing == Packing::blocks; }
bool written_transposed(const Module& module) { return module.transposed || is_gpt_oss(module); }

// "experts.gate_up_proj": a parameter of its own in Transformers, without ".weight" behind it.
bool is_bare_parameter(const Module& module) {
  const std::string_view name = module.name;
  const std::size_t dot = name.rfind('.');
  return module.experts > 0 && dot != std::string_view::npos &&
         (name.substr(0, dot) == "experts" || name.substr(0, dot).ends_with(".experts"));
}

// "up_proj.weight" from any name of a matrix's codes ("weight_packed", "qweight").
std::string output_name(const Module& module) {
  if (is_bare_parameter(module)) return module.name;
  const std::string_view weight = module.part("weight");
  return weight.empty() ? module.name + ".weight" : std::string(weight);
}

Shape output_shape(const Module& module) {
  Shape shape = {module.n, module.k};
  if (module.experts == 0) return shape;
  if (written_transposed(module)) std::swap(shape[0], shape[1]);
  shape.insert(shape.begin(), module.experts);
  return shape;
}

Result<void> add_module(const Module& module, DType dtype, DecodePlan& plan) {
  if (!module.unreadable.empty()) {
    return Error{ErrorCode::unsupported, module.unreadable, module.name};
  }
  const bool fused = module.experts > 0;
  const std::string output = output_name(module);
  plan.outputs.push_back({output, dtype, output_shape(module)});
  ++plan.decoded_tensors;
  for (std::int64_t e = 0; e < std::max<std::int64_t>(module.experts, 1); ++e) {
    plan.jobs.push_back({&module, fused ? e : -1, output});
  }
  return {};
}

// Plain weights with a part of quantized storage beside them are copied only when that is
// understood.
Result<void> check_plain(const Module& module) {
  const bool alone = std::none_of(module.parts.begin(), module.parts.end(), [](const auto& part) {
    return is_quantization_suffix(part.suffix);
  });
  if (module.unreadable.empty() || alone) return {};
  return Error{ErrorCode::unsupported, module.unreadable, module.name};
}

Result<DecodePlan> make_plan(const Checkpoint& source, const Identified& identified, DType dtype) {
  DecodePlan plan;
  std::unordered_set<std::string_view> consumed;
  for (const Module& module : identified.modules) {
    if (!module.scheme.quantized()) {
      FEWBIT_TRY(check_plain(module));
      continue;
    }
    FEWBIT_TRY(add_module(module, dtype, plan));
    for (const Module::Part& part : module.parts) {
      if (part.suffix != "bias") consumed.insert(part.tensor);
    }
  }
  if (plan.jobs.empty()) {
    return Error{ErrorCode::unsupported, "nothing is quantized, so there is nothing to decode",
                 source.directory().string()};
  }
  for (const TensorInfo& info : source.tensors()) {
    if (consumed.contains(info.name)) continue;
    plan.kept.push_back(&info);
    plan.outputs.push_back({info.name, info.dtype, info.shape});
  }
  return plan;
}

// The block scale of a value, for messages.
std::string scale_text(const QuantizedTensor& matrix, const Module& module, std::int64_t row,
                       std::int64_t column) {
  std::string text = fmt::format("global scale {}", number_text(matrix.global_scale));
  std::string names;
  for (const std::string_view suffix : {"weight.absmax", "weight.nested_absmax", "SCB", "scales"}) {
    if (!module.part(suffix).empty()) names = module.part(suffix);
  }
  for (const std::string_view suffix : scale_parts(module)) names = module.part(suffix);
  if (!matrix.offsets.empty() && !module.part("qzeros").empty()) {
    names += fmt::format(" and {}", module.part("qzeros"));
  }
  if (!matrix.scheme.scale || names.empty()) return text;
  const Granularity& group = matrix.scheme.scale->granularity;
  return fmt::format("scale {} [{}, {}], {}", names, group.rows == 0 ? 0 : row / group.rows,
                     group.cols == 0 ? 0 : column / group.cols, text);
}

// NaN and infinity, decoded or by rounding to the target, are refused with their place.
Result<void> check_values(const QuantizedTensor& matrix, const DecodeJob& job, std::int64_t row,
                          std::span<const double> values, std::span<const float> rounded,
                          DType dtype) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(rounded[i])) continue;
    const std::int64_t r = row + static_cast<std::int64_t>(i) / matrix.k;
    const std::int64_t c = static_cast<std::int64_t>(i) % matrix.k;
    const auto near = static_cast<float>(values[i]);
    const std::string value = std::isinf(near) ? fmt::format("{}", values[i]) : number_text(near);
    return Error{
        ErrorCode::corrupt,
        fmt::format(
            "value [{}, {}]{} is {}, expected {} ({})", r, c,
            job.fused_expert < 0 ? std::string() : fmt::format(" of expert {}", job.fused_expert),
            value,
            std::isfinite(values[i]) ? fmt::format("a number that {} can hold", dtype_name(dtype))
                                     : std::string("a finite number"),
            scale_text(matrix, *job.module, r, c)),
        job.output};
  }
  return {};
}

// What activations are multiplied by, so that plain weights may be in its place; empty: nothing.
Result<std::vector<float>> column_factors(const QuantizedTensor& matrix) {
  std::vector<float> factors;
  if (matrix.pre_quant_scale.empty()) return factors;
  factors.resize(static_cast<std::size_t>(matrix.k));
  const TensorView& view = matrix.pre_quant_scale.view;
  FEWBIT_TRY(convert_to_f32(view.dtype, view.bytes, factors));
  return factors;
}

void scale_columns(std::span<const float> factors, std::span<double> rows) {
  for (std::size_t i = 0; !factors.empty() && i < rows.size(); ++i) {
    rows[i] *= factors[i % factors.size()];
  }
}

// Rows of a matrix on their way.
struct Piece {
  std::vector<double> values;
  std::vector<float> narrow;
  std::vector<float> back;
  std::vector<std::byte> bytes;
};

// What a matrix lost on its way.
struct Losses {
  std::int64_t inexact = 0;
  std::int64_t erased = 0;
  std::int64_t all_ones_zeros = 0;
};

// The f32 that rounds to the same number of a narrower type as the value itself: where it is
// between two, that with an odd last bit, which is no tie of the narrower type.
float to_odd(double value) {
  float near = static_cast<float>(value);
  if (static_cast<double>(near) == value || !std::isfinite(near)) return near;
  const bool above = std::abs(static_cast<double>(near)) > std::abs(value);
  auto bits = std::bit_cast<std::uint32_t>(near);
  if (bits % 2 == 0) bits += above ? -1U : 1U;
  return std::bit_cast<float>(bits);
}

// Fills `piece`. Returns how many values were rounded.
Result<Losses> decode_piece(const QuantizedTensor& matrix, const DecodeJob& job,
                            std::span<const float> columns, std::int64_t row, std::int64_t count,
                            DType dtype, Piece& piece) {
  piece.values.resize(static_cast<std::size_t>(count * matrix.k));
  piece.bytes.resize(piece.values.size() * static_cast<std::size_t>(dtype_bits(dtype)) / 8);
  piece.back.resize(piece.values.size());
  FEWBIT_TRY(dequantize_rows_exactly(matrix, row, piece.values));
  scale_columns(columns, piece.values);
  // Once, from the exact value.
  const bool wide = dtype == DType::f32;
  piece.narrow.resize(piece.values.size());
  std::ranges::transform(piece.values, piece.narrow.begin(), [&](double value) {
    return wide ? static_cast<float>(value) : to_odd(value);
  });
  FEWBIT_TRY(convert_from_f32(piece.narrow, dtype, piece.bytes));
  FEWBIT_TRY(convert_to_f32(dtype, piece.bytes, piece.back));
  FEWBIT_TRY(check_values(matrix, job, row, piece.values, piece.back, dtype));
  Losses losses;
  for (std::size_t i = 0; i < piece.values.size(); ++i) {
    losses.inexact += piece.values[i] != static_cast<double>(piece.back[i]) ? 1 : 0;
    losses.erased += piece.values[i] != 0 && piece.back[i] == 0 ? 1 : 0;
  }
  return losses;
}

// A zero point of 0 of this packing was stored as all ones. Returns how many there are.
Result<std::int64_t> read_all_ones_zeros(const Module& module, AllOnesZeros reading,
                                         QuantizedTensor& matrix) {
  const bool one_too_small = module.scheme.packing == Packing::words_k_minus;
  const TensorView& view = matrix.zero_points.view;
  if (!one_too_small || matrix.zero_points.empty() || view.dtype != DType::u8) return 0;
  const std::int64_t count = std::ranges::count(view.bytes, std::byte{0});
  if (count == 0 || reading == AllOnesZeros::wrap) return count;
  FEWBIT_TRY(OwnedTensor wide, allocate_tensor(DType::i32, view.shape));
  const std::int32_t above = 1 << dtype_bits(module.scheme.weight);
  for (std::size_t i = 0; i < view.bytes.size(); ++i) {
    const auto stored = std::to_integer<std::int32_t>(view.bytes[i]);
    const std::int32_t zero = stored == 0 ? above : stored;
    std::memcpy(wide.bytes.data() + i * sizeof(zero), &zero, sizeof(zero));
  }
  matrix.zero_points = std::move(wide.tensor);
  return count;
}

// Decodes a matrix in pieces of rows; one that is written the other way round as a whole.
Result<Losses> decode_matrix(const Checkpoint& source, const DecodeJob& job,
                             const DequantizeOptions& options, DecodedOutput& writer) {
  const DType dtype = options.dtype;
  FEWBIT_TRY(QuantizedTensor matrix, canonicalize(source, *job.module, job.fused_expert));
  Losses losses;
  FEWBIT_TRY(losses.all_ones_zeros,
             read_all_ones_zeros(*job.module, options.all_ones_zeros, matrix));
  const bool transposed = job.fused_expert >= 0 && written_transposed(*job.module);
  const std::int64_t rows =
      transposed ? matrix.n : std::clamp<std::int64_t>(piece_values / matrix.k, 1, matrix.n);
  const auto width = static_cast<std::uint64_t>(dtype_bits(dtype)) / 8;
  const std::uint64_t base =
      job.fused_expert < 0 ? 0 : static_cast<std::uint64_t>(job.fused_expert * matrix.n * matrix.k);
  FEWBIT_TRY(const std::vector<float> columns, column_factors(matrix));
  Piece piece;
  for (std::int64_t row = 0; row < matrix.n; row += rows) {
    const std::int64_t count = std::min(rows, matrix.n - row);
    FEWBIT_TRY(const Losses lost, decode_piece(matrix, job, columns, row, count, dtype, piece));
    losses.inexact += lost.inexact;
    losses.erased += lost.erased;
    if (transposed) {
      const Tensor whole{{dtype, {matrix.n, matrix.k}, piece.bytes, {}}, nullptr};
      FEWBIT_TRY(const Tensor turned, transposed_copy(whole));
      FEWBIT_TRY(writer.write(job.output, turned.view.bytes, base * width));
    } else {
      const std::uint64_t at = base + static_cast<std::uint64_t>(row * matrix.k);
      FEWBIT_TRY(writer.write(job.output, piece.bytes, at * width));
    }
  }
  return losses;
}

class Job {
 public:
  Job(const Checkpoint& source, const DequantizeOptions& options, Executor& executor,
      const DecodePlan& plan, DecodedOutput& writer)
      : source_(source), options_(options), executor_(executor), plan_(plan), writer_(writer) {}

  Result<DequantizeReport> run() {
    report_.decoded_tensors = plan_.decoded_tensors;
    report_.kept_tensors = static_cast<std::int64_t>(plan_.kept.size());
    report_.source_bytes = source_.total_bytes();
    for (const TensorSpec& spec : plan_.outputs) {
      FEWBIT_TRY(const std::uint64_t bytes, tensor_bytes(spec.dtype, spec.shape));
      report_.output_bytes += bytes;
    }
    const auto batch = static_cast<std::size_t>(std::max(executor_.threads(), 1)) * 4;
    for (std::size_t first = 0; first < plan_.jobs.size(); first += batch) {
      const std::size_t count = std::min(batch, plan_.jobs.size() - first);
      FEWBIT_TRY(decode_batch(std::span(plan_.jobs).subspan(first, count)));
    }
    for (const TensorInfo* info : plan_.kept) {
      FEWBIT_TRY(writer_.write(info->name, source_.tensor(*info).view.bytes));
      source_.release(*info);
      FEWBIT_TRY(advance(info->bytes));
    }
    return report_;
  }

 private:
  // Progress and cancelling happen between batches, on the caller's thread.
  Result<void> decode_batch(std::span<const DecodeJob> jobs) {
    std::vector<std::optional<Result<Losses>>> results(jobs.size());
    parallel_for(executor_, static_cast<int>(jobs.size()), [&](int i) {
      const auto at = static_cast<std::size_t>(i);
      results[at].emplace(decode_matrix(source_, jobs[at], options_, writer_));
    });
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      FEWBIT_TRY(const Losses losses, *std::move(results[i]));
      report_.inexact_values += losses.inexact;
      report_.erased_values += losses.erased;
      report_.all_ones_zeros += losses.all_ones_zeros;
      const Module& module = *jobs[i].module;
      bytes += static_cast<std::uint64_t>(module.n * module.k) *
               static_cast<std::uint64_t>(dtype_bits(options_.dtype)) / 8;
    }
    return advance(bytes);
  }

  Result<void> advance(std::uint64_t bytes) {
    done_ += bytes;
    if (!options_.progress || options_.progress(done_, report_.output_bytes)) return {};
    return Error{ErrorCode::cancelled,
                 fmt::format("stopped after {} of {} bytes", done_, report_.output_bytes), ""};
  }

  const Checkpoint& source_;
  const DequantizeOptions& options_;
  Executor& executor_;
  const DecodePlan& plan_;
  DecodedOutput& writer_;
  DequantizeReport report_;
  std::uint64_t done_ = 0;
};

}  // namespace

Result<DequantizeReport> dequantize_checkpoint(const Checkpoint& source,
                                               const std::filesystem::path& output,
                                               const DequantizeOptions& options,
                                               Executor& executor) {
  if (options.dtype != DType::bf16 && options.dtype != DType::f16 && options.dtype != DType::f32) {
    return Error{ErrorCode::unsupported,
                 fmt::format("target is {}, expected bf16, f16 or f32", dtype_name(options.dtype)),
                 ""};
  }
  FEWBIT_TRY(refuse_prepared(source.directory(), "convert"));
  FEWBIT_TRY(const Identified identified, identify(source));
  FEWBIT_TRY(const std::optional<Error> unused_scales, check_complete(source, identified));
  FEWBIT_TRY(const DecodePlan plan, make_plan(source, identified, options.dtype));
  FEWBIT_TRY(check_kept(source, identified, plan.kept));
  FEWBIT_TRY(DecodedOutput writer, DecodedOutput::create(source, output, plan.outputs, options));
  Job job(source, options, executor, plan, writer);
  FEWBIT_TRY(DequantizeReport report, job.run());
  if (unused_scales) return *unused_scales;
  FEWBIT_TRY(writer.finish(source, options));
  report.gguf_files = writer.gguf_files();
  return report;
}

}  // namespace fewbit
