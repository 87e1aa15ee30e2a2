// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_marlin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "backends/foreign/expert_matrices.hpp"
#include "backends/foreign/rules.hpp"
#include "layout/code_rows.hpp"
#include "layout/gptq_words.hpp"
#include "layout/prepare_marlin.hpp"

namespace fewbit::foreign {
namespace {

struct Job {
  int bits = 4;
  std::int64_t group_size = -1;
  std::int64_t padded = 0;  // intermediate_size
  Gating gating = Gating::gated;
};

// Of both matrices; 0: a scale a row. Where one group is the whole of a matrix it reads as that.
std::optional<std::int64_t> common_group(const MoeProblem& problem) {
  const Granularity in = problem.gate_up.scale->granularity;
  const Granularity out = problem.down.scale->granularity;
  if (in == out) return out.cols;
  if (in.rows != out.rows) return std::nullopt;
  if (in.cols == 0 && out.cols == problem.hidden_size) return out.cols;
  if (out.cols == 0 && in.cols == problem.intermediate_size) return in.cols;
  return std::nullopt;
}

Result<Job> job_of(const MoeProblem& problem) {
  for (const Scheme* scheme : {&problem.gate_up, &problem.down}) {
    if (integers.contains(weight_kind(*scheme))) continue;
    return Error{ErrorCode::unsupported,
                 "the Marlin layout of " + scheme_text(*scheme) +
                     ", expected 4 or 8-bit integers, NVFP4, MXFP4 or FP8",
                 problem.where};
  }
  const std::optional<std::int64_t> group = common_group(problem);
  if (!group || problem.gate_up.weight != problem.down.weight) {
    return Error{ErrorCode::unsupported,
                 fmt::format("gate and up are {}, down is {}: Marlin has one form for both",
                             scheme_text(problem.gate_up), scheme_text(problem.down)),
                 problem.where};
  }
  if (problem.two_order_experts > 0) {
    return Error{ErrorCode::unsupported,
                 fmt::format("gate and up of {} experts have two act-orders, and the kernels have "
                             "one for both",
                             problem.two_order_experts),
                 problem.where};
  }
  FEWBIT_TRY(check_middle_zero(problem.gate_up, problem.where));
  FEWBIT_TRY(check_middle_zero(problem.down, problem.where));
  Job job;
  job.bits = dtype_bits(problem.down.weight);
  job.group_size = *group == 0 ? -1 : *group;
  job.padded = problem.down.act_order == ActOrder::group
                   ? problem.intermediate_size
                   : marlin_padded_intermediate(problem.intermediate_size, job.group_size);
  if (!activation_gated(problem.activation.kind)) job.gating = Gating::ungated;
  return job;
}

Result<void> plan_stack(const MoeProblem& problem, const Job& job, const Stack& stack, Dims dims,
                        MoePlan& plan) {
  // In act-order a rank's columns point into the scales of the whole matrix.
  const std::int64_t groups = job.group_size == -1 ? 1
                              : stack.ordered()    ? stack.groups()
                                                   : dims.k / job.group_size;
  const auto add = [&](const char* part, const char* layout, DType dtype, Shape shape) {
    const bool scales = std::string_view(part) == "scales";
    return plan.add(
        {.name = stack.name + "." + part,
         .layout = layout,
         .scale_format = scales ? std::string(dtype_name(problem.activation_dtype)) : "",
         .source = scheme_text(stack.scheme()),
         .dtype = dtype,
         .shape = std::move(shape)});
  };
  FEWBIT_TRY(add("words", job.bits == 4 ? "marlin_4bit" : "marlin_8bit", DType::i32,
                 {dims.k / 16, dims.n * job.bits / 2}));
  FEWBIT_TRY(add("scales", "marlin_scales", problem.activation_dtype, {groups, dims.n}));
  if (stack.has_zeros()) {
    FEWBIT_TRY(add("zeros", "marlin_zeros", DType::i32, {groups, dims.n * job.bits / 32}));
  }
  if (stack.biased()) {
    FEWBIT_TRY(add("bias", "marlin_scales", problem.activation_dtype, {dims.n}));
  }
  if (!stack.ordered()) return {};
  FEWBIT_TRY(add("g_idx", "row_major", DType::i32, {dims.k}));
  return add("order", "row_major", DType::i32, {dims.k});
}

// Memory of one stack in the form that vLLM's loader starts from, but for its codes, which are
// repacked from their rows.
struct Source {
  OwnedTensor scales;
  std::optional<OwnedTensor> zeros;
  std::optional<OwnedTensor> bias;
  std::optional<OwnedTensor> g_idx;

  MarlinMatrix matrix() const {
    const auto view = [](const std::optional<OwnedTensor>& tensor) {
      return tensor ? std::optional(tensor->tensor.view) : std::nullopt;
    };
    return {.words = {},
            .without_words = true,
            .scales = scales.tensor.view,
            .zeros = view(zeros),
            .bias = view(bias),
            .g_idx = view(g_idx)};
  }
};

Result<Source> source_of(const MoeProblem& problem, const Stack& stack) {
  FEWBIT_TRY(check_middle_zero(stack));
  Source source;
  if (stack.ordered()) {
    FEWBIT_TRY(source.g_idx, group_index(stack));
  }
  FEWBIT_TRY(source.scales, scales_by_group(stack, problem.activation_dtype));
  if (stack.has_zeros()) {
    FEWBIT_TRY(source.zeros, zero_words(stack));
  }
  if (stack.biased()) {
    FEWBIT_TRY(source.bias, bias_of(stack, problem.activation_dtype));
  }
  return source;
}

// Rows whose tiles lie together, and are made in little memory.
struct Strip {
  std::vector<CodeRows> parts;
  std::int64_t first_n = 0;
  std::int64_t rows = 0;
  std::int64_t padded_rows = 0;
  std::int64_t parts_n = 1;  // each padded for itself
};

// padded_rows: of all parts together.
std::vector<Strip> strips_of(const Stack& stack, std::int64_t padded_rows) {
  constexpr std::int64_t tile_n = 64;
  constexpr std::int64_t most_rows = 4 * tile_n;
  const std::vector<CodeRows> parts = code_rows(stack);
  const auto fills_tiles = [](const CodeRows& part) { return part.dims.n % tile_n == 0; };
  if (padded_rows != stack.rows() || !std::ranges::all_of(parts, fills_tiles)) {
    return {{parts, 0, stack.rows(), padded_rows, std::ssize(stack.parts)}};
  }
  std::vector<Strip> strips;
  for (const CodeRows& part : parts) {
    const std::size_t row_bytes = part.codes.size() / static_cast<std::size_t>(part.dims.n);
    for (std::int64_t n = 0; n < part.dims.n; n += most_rows) {
      const std::int64_t rows = std::min(most_rows, part.dims.n - n);
      const auto codes = part.codes.subspan(static_cast<std::size_t>(n) * row_bytes,
                                            static_cast<std::size_t>(rows) * row_bytes);
      strips.push_back({.parts = {{.codes = codes, .dims = {.n = rows, .k = part.dims.k}}},
                        .first_n = part.first_n + n,
                        .rows = rows,
                        .padded_rows = rows});
    }
  }
  return strips;
}

// Tiles of a strip with its columns in that order.
Result<void> order_strip(const Job& job, const Stack& stack, const Strip& strip,
                         const Tensor& order, std::span<std::byte> tiles) {
  const Dims dims{.n = strip.rows, .k = stack.columns()};
  const auto columns = order.view.bytes;
  const PaddedMatrix matrix{.from = dims,
                            .to = {.n = strip.padded_rows, .k = dims.k},
                            .parts_n = strip.parts_n,
                            .order = {reinterpret_cast<const std::int32_t*>(columns.data()),
                                      columns.size() / sizeof(std::int32_t)}};
  const MarlinCodes codes{.source = WordSource::gptq, .bits = job.bits};
  FEWBIT_TRY(check_marlin_codes(stack.name, codes, matrix));
  FEWBIT_TRY(const OwnedTensor words,
             allocate_tensor(DType::i32, {dims.k * job.bits / 32, dims.n}));
  const DType dtype = stack.scheme().weight;
  const bool is_signed = dtype == DType::i4 || dtype == DType::i8;
  for (const CodeRows& part : strip.parts) {
    job.bits == 4 ? move_code_rows<GptqWords<4>>(part, is_signed, dims, words.bytes)
                  : move_code_rows<GptqWords<8>>(part, is_signed, dims, words.bytes);
  }
  marlin_repack(codes, matrix, words.bytes, tiles);
  return {};
}

// Of tiles with 16 k and 32/bits codes a word.
Result<Dims> planned_dims(const Job& job, const MoePlan& plan, const std::string& name) {
  const PlannedBuffer* words = plan.find(name);
  if (words == nullptr || words->shape.size() != 2) {
    return Error{ErrorCode::invalid_argument, "not planned", name};
  }
  return Dims{.n = words->shape[1] * 2 / job.bits, .k = words->shape[0] * 16};
}

// Codes in act-order.
Result<void> repack_ordered(const Job& job, const MoePlan& plan, const Stack& stack,
                            const Tensor& order, ExpertSpans to) {
  const std::string name = stack.name + ".words";
  FEWBIT_TRY(const std::span<std::byte> tiles, planned_share(plan, to, name));
  // Each 16 columns have the tiles of all rows together.
  const auto row_bytes = static_cast<std::size_t>(16 * job.bits / 8);
  FEWBIT_TRY(const Dims planned, planned_dims(job, plan, name));
  const std::size_t all = static_cast<std::size_t>(planned.n) * row_bytes;
  const auto tile_rows = static_cast<std::size_t>(stack.columns() / 16);
  if (tiles.size() != all * tile_rows) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} of {} bytes, planned are {}", name, all * tile_rows, tiles.size()),
                 ""};
  }
  std::vector<std::byte> made;
  for (const Strip& strip : strips_of(stack, planned.n)) {
    const std::size_t part = static_cast<std::size_t>(strip.padded_rows) * row_bytes;
    made.resize(part * tile_rows);
    FEWBIT_TRY(order_strip(job, stack, strip, order, made));
    for (std::size_t row = 0; row < tile_rows; ++row) {
      std::memcpy(tiles.data() + row * all + static_cast<std::size_t>(strip.first_n) * row_bytes,
                  made.data() + row * part, part);
    }
  }
  return {};
}

Result<void> repack_rows(const Job& job, const MoePlan& plan, const Stack& stack, ExpertSpans to) {
  const std::string name = stack.name + ".words";
  FEWBIT_TRY(const Dims dims, planned_dims(job, plan, name));
  const std::int64_t part_rows = dims.n / std::ssize(stack.parts);
  std::vector<CodeRows> parts;
  for (const QuantizedTensor* part : stack.parts) {
    if (part->n > part_rows || part->k > dims.k) {
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("[{}, {}] codes, planned are [{}, {}]", part->n, part->k, part_rows, dims.k),
          name};
    }
    parts.push_back({.codes = part->codes.view.bytes,
                     .dims = {.n = part->n, .k = part->k},
                     .first_n = std::ssize(parts) * part_rows});
  }
  FEWBIT_TRY(const std::span<std::byte> tiles, planned_share(plan, to, name));
  const DType dtype = stack.scheme().weight;
  marlin_repack_rows(job.bits, dtype == DType::i4 || dtype == DType::i8, parts, dims, tiles);
  return {};
}

Result<void> put_result(const MoePlan& plan, ExpertSpans to, const std::string& name,
                        const MarlinMatrixResult& result) {
  const struct {
    const char* part;
    const Tensor& tensor;
  } parts[] = {{".words", result.words}, {".scales", result.scales}, {".zeros", result.zeros},
               {".bias", result.bias},   {".g_idx", result.g_idx},   {".order", result.order}};
  for (const auto& part : parts) {
    const bool planned = plan.find(name + part.part) != nullptr;
    const bool repacked = result.words.empty() && std::string_view(part.part) == ".words";
    if (repacked || (part.tensor.empty() && !planned)) continue;
    FEWBIT_TRY(put(plan, to, name + part.part, part.tensor.view.bytes));
  }
  return {};
}

}  // namespace

Result<void> check_marlin(const MoeProblem& problem) {
  const Result<Job> job = job_of(problem);
  return job ? Result<void>() : job.error();
}

Result<MoePlan> plan_marlin_experts(const MoeProblem& problem, const ExpertWeights& first) {
  FEWBIT_TRY(const Job job, job_of(problem));
  MoePlan plan;
  plan.experts = problem.num_experts;
  const std::int64_t halves = job.gating == Gating::gated ? 2 : 1;
  FEWBIT_TRY(plan_stack(problem, job, w13_stack(first),
                        {.n = halves * job.padded, .k = problem.hidden_size}, plan));
  FEWBIT_TRY(
      plan_stack(problem, job, w2_stack(first), {.n = problem.hidden_size, .k = job.padded}, plan));
  return plan;
}

Result<void> pack_marlin_expert(const MoeProblem& problem, const MoePlan& plan,
                                const ExpertWeights& expert, ExpertSpans to) {
  FEWBIT_TRY(const Job job, job_of(problem));
  const Stack gate_up = w13_stack(expert);
  const Stack down = w2_stack(expert);
  FEWBIT_TRY(const Source w13, source_of(problem, gate_up));
  FEWBIT_TRY(const Source w2, source_of(problem, down));
  MarlinInput input;
  input.codes = {.source = WordSource::gptq, .bits = job.bits};
  input.row_order = MarlinRowOrder::act_order;
  input.group_size = job.group_size;
  input.hidden_size = problem.hidden_size;
  input.intermediate_size = problem.intermediate_size;
  input.gating = job.gating;
  input.w13 = w13.matrix();
  input.w2 = w2.matrix();
  FEWBIT_TRY(const MarlinResult result, prepare_marlin(input, serial_executor()));
  const auto repack = [&](const Stack& stack, const Tensor& order) {
    return stack.ordered() ? repack_ordered(job, plan, stack, order, to)
                           : repack_rows(job, plan, stack, to);
  };
  FEWBIT_TRY(repack(gate_up, result.w13.order));
  FEWBIT_TRY(repack(down, result.w2.order));
  FEWBIT_TRY(put_result(plan, to, "w13", result.w13));
  return put_result(plan, to, "w2", result.w2);
}

}  // namespace fewbit::foreign
