// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/linear.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backends/cuda_moe/expert_packer.hpp"
#include "backends/cuda_moe/expert_parts.hpp"
#include "backends/cuda_moe/shared_scratch.hpp"
#include "backends/cuda_moe/weight_cells.hpp"
#include "canonical/column_order.hpp"
#include "canonical/gguf_exact.hpp"
#include "kernels/cuda/order_rows.hpp"

namespace fewbit::cuda {
namespace {

// Products of a call in f32 that wait for being rounded: 256 MiB.
constexpr std::int64_t max_products = std::int64_t{1} << 26;

struct DenseWeights {
  device::Buffer matrix;
  device::Buffer globals;  // f32 [2], twice the same; with f4_global_factor
  device::Buffer rows;     // f32 [n], scales of rows, or none
  device::Buffer ids;      // of max_tokens tokens: expert 0
  device::Buffer ones;     // their router weights
  device::Buffer order;    // i32 [k], with act-order
};

std::uint64_t row_bytes(DType dtype, std::int64_t columns) {
  return static_cast<std::uint64_t>(columns * dtype_bits(dtype) / 8);
}

struct DenseCall {
  std::int64_t tokens = 0;
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
};

class Linear final : public PreparedLinear {
 public:
  Linear(const LinearProblem& problem, const DeviceInfo& card,
         std::shared_ptr<SharedScratch> scratch, DenseWeights weights, bool grouped)
      : problem_(problem),
        format_(cells_of(problem.weight).value_or(CellFormat{})),
        card_(card_of(card)),
        scratch_(std::move(scratch)),
        weights_(std::move(weights)),
        grouped_(grouped),
        streams_(plan_stream(format_, shape_of(1), card_).has_value()) {}

  // Of host memory; a call from there works in the shared scratch.
  Result<std::uint64_t> workspace_bytes(std::int64_t /*tokens*/) const override {
    return std::uint64_t{0};
  }
  Result<std::uint64_t> device_workspace_bytes(std::int64_t tokens) const override {
    if (tokens == 0) return std::uint64_t{0};
    if (grouped(tokens)) {
      FEWBIT_TRY(const GroupedPlan plan, plan_grouped(shape_of(part_of(tokens)), card_));
      return ordered_bytes(tokens) + static_cast<std::uint64_t>(plan.scratch_bytes);
    }
    FEWBIT_TRY(const StreamPlan plan, stream_plan(tokens));
    return ordered_bytes(tokens) + counter_bytes(plan) + product_bytes(plan);
  }
  Result<void> run(const LinearArgs& args, Executor& /*executor*/) const override {
    if (args.x.device.kind == DeviceKind::cpu) return run_on_host_memory(args);
    return launch({args.tokens, args.x.bytes.data(), args.y.data()}, args.workspace.data(),
                  args.stream);
  }
  PreparedInfo info() const override {
    return {.backend = "cuda_moe",
            .layout = layout_name(format_),
            .owned_bytes = weights_.matrix.size()};
  }

  // Bytes that run() takes of the shared scratch for a call from the host.
  Result<std::uint64_t> host_call_bytes(std::int64_t tokens) const {
    FEWBIT_TRY(const std::uint64_t workspace, device_workspace_bytes(tokens));
    return host_y_at(tokens) + scratch_aligned(y_bytes(tokens)) + workspace;
  }

 private:
  StreamShape shape_of(std::int64_t tokens) const {
    return dense_shape(format_.kind, tokens, {.n = problem_.n, .k = problem_.k});
  }
  bool grouped(std::int64_t tokens) const {
    return grouped_ && (!streams_ || runs_grouped(shape_of(tokens)));
  }
  // Tokens that the grouped kernels take at once.
  std::int64_t part_of(std::int64_t tokens) const {
    constexpr std::int64_t whole = grouped_item_rows;
    return std::min(tokens, std::max(whole, max_products / problem_.n / whole * whole));
  }
  // Of the most tokens, up to `tokens`, that the streaming kernel takes at once.
  Result<StreamPlan> stream_plan(std::int64_t tokens) const {
    return plan_stream_part(format_, shape_of(tokens), card_);
  }
  static std::uint64_t counter_bytes(const StreamPlan& plan) {
    return scratch_aligned(4 * static_cast<std::uint64_t>(plan.counters));
  }
  std::uint64_t product_bytes(const StreamPlan& plan) const {
    return static_cast<std::uint64_t>(plan.tokens) * row_bytes(DType::f32, problem_.n);
  }
  std::uint64_t y_bytes(std::int64_t tokens) const {
    return static_cast<std::uint64_t>(tokens) * row_bytes(problem_.output_dtype, problem_.n);
  }
  std::uint64_t host_y_at(std::int64_t tokens) const {
    return scratch_aligned(static_cast<std::uint64_t>(tokens) *
                           row_bytes(problem_.activation_dtype, problem_.k));
  }

  // With act-order: x in it.
  std::uint64_t ordered_bytes(std::int64_t tokens) const {
    return weights_.order.size() == 0 ? 0 : host_y_at(tokens);
  }
  Result<void> order_rows(DenseCall& call, std::byte* to, void* stream) const {
    const OrderRowsArgs rows{.tokens = static_cast<int>(call.tokens),
                             .top_k = 1,
                             .experts = 1,
                             .width = static_cast<int>(problem_.k),
                             .order = weights_.order.as<std::int32_t>(),
                             .to = to};
    FEWBIT_TRY(device::check(launch_order_rows(rows, kernel_args(call), stream),
                             problem_.where + ", ordering activations"));
    call.x = to;
    return {};
  }

  MoeF4Args kernel_args(const DenseCall& call) const {
    MoeF4Args args;
    args.w2 = weights_.matrix.as<std::uint8_t>();
    args.global13 = weights_.globals.as<float>();
    args.global2 = args.global13;
    args.row_scale2 = weights_.rows.as<float>();
    args.topk_ids = weights_.ids.as<std::int32_t>();
    args.topk_weights = weights_.ones.as<float>();
    args.x = call.x;
    args.x_type = activation_type(problem_.activation_dtype);
    args.out = call.y;
    args.out_type = out_type(problem_.output_dtype);
    return args;
  }
  DenseCall part_at(const DenseCall& call, std::int64_t done, std::int64_t tokens) const {
    const auto rows = static_cast<std::uint64_t>(done);
    return {tokens, call.x + rows * row_bytes(problem_.activation_dtype, problem_.k),
            call.y + rows * row_bytes(problem_.output_dtype, problem_.n)};
  }

  Result<void> launch(const DenseCall& from, std::byte* workspace, void* stream) const {
    DenseCall call = from;
    if (const std::uint64_t bytes = ordered_bytes(call.tokens); bytes > 0) {
      FEWBIT_TRY(order_rows(call, workspace, stream));
      workspace += bytes;
    }
    const bool many = grouped(call.tokens);
    std::int64_t part = part_of(call.tokens);
    if (!many) {
      FEWBIT_TRY(const StreamPlan plan, stream_plan(call.tokens));
      part = plan.tokens;
    }
    for (std::int64_t done = 0; done < call.tokens; done += part) {
      const DenseCall now = part_at(call, done, std::min(part, call.tokens - done));
      FEWBIT_TRY(many ? launch_grouped(now, workspace, stream)
                      : launch_stream(now, workspace, stream));
    }
    return {};
  }
  Result<void> launch_grouped(const DenseCall& call, std::byte* workspace, void* stream) const {
    FEWBIT_TRY(const GroupedPlan plan, plan_grouped(shape_of(call.tokens), card_));
    return device::check(launch_moe_f4_grouped(format_, plan, kernel_args(call), workspace, stream),
                         problem_.where + ", grouped kernels of a dense layer");
  }
  Result<void> launch_stream(const DenseCall& call, std::byte* workspace, void* stream) const {
    FEWBIT_TRY(const StreamPlan plan, plan_stream(format_, shape_of(call.tokens), card_));
    MoeF4Args args = kernel_args(call);
    args.counters = reinterpret_cast<std::uint32_t*>(workspace);
    args.products = reinterpret_cast<float*>(workspace + counter_bytes(plan));
    // What fc1 would have left.
    args.activated = const_cast<void*>(std::exchange(args.x, nullptr));
    FEWBIT_TRY(
        device::fill_on(workspace, 0, 4 * static_cast<std::uint64_t>(plan.counters), stream));
    return device::check(launch_moe_f4(format_, plan, args, stream),
                         problem_.where + ", streaming kernel of a dense layer");
  }

  Result<void> run_on_host_memory(const LinearArgs& args) const {
    const std::scoped_lock lock(scratch_->mutex());
    const device::Stream& stream = scratch_->stream();
    FEWBIT_TRY(const std::uint64_t bytes, host_call_bytes(args.tokens));
    FEWBIT_TRY(std::byte* const memory, scratch_->memory(bytes));
    const DenseCall call{args.tokens, memory, memory + host_y_at(args.tokens)};
    FEWBIT_TRY(device::copy_to_device(memory, args.x.bytes, stream));
    FEWBIT_TRY(launch(call, call.y + scratch_aligned(y_bytes(args.tokens)), stream.handle()));
    FEWBIT_TRY(device::copy_to_host(args.y, call.y, stream));
    return stream.synchronize();
  }

  LinearProblem problem_;
  CellFormat format_;
  StreamCard card_;
  std::shared_ptr<SharedScratch> scratch_;  // outlives the weights, which are of its stream
  DenseWeights weights_;
  bool grouped_;  // the weights may go through grouped products
  bool streams_;  // the layer fits the streaming kernel
};

Result<DenseWeights> put_on_device(const LinearProblem& problem, const QuantizedTensor& weight,
                                   const device::Stream& stream) {
  const MoeProblem moe = moe_problem_of(problem);
  const CellFormat format = format_of(moe);
  DenseWeights weights;
  const auto bytes = static_cast<std::uint64_t>(packed_bytes(format, half2(moe)));
  FEWBIT_TRY(weights.matrix, device::Buffer::allocate(bytes, stream));
  ExpertPacker packer(moe, stream);
  ExpertWeights expert;
  expert.down = weight;
  FEWBIT_TRY(packer.pack(expert, 1, weights.matrix.data()));
  FEWBIT_TRY(const float global, global_of(weight));
  const std::vector<float> globals(2, global * f4_global_factor(format));
  FEWBIT_TRY(weights.globals, device::copy_of(globals, stream));
  std::vector<float> rows;
  if (has_row_scales(moe)) {
    FEWBIT_TRY(rows, scales_in_f32(weight));
    FEWBIT_TRY(weights.rows, device::copy_of(rows, stream));
  }
  std::vector<std::int32_t> order;
  if (is_ordered(problem.weight)) {
    FEWBIT_TRY(order, column_order(weight));
    FEWBIT_TRY(weights.order, device::copy_of(order, stream));
  }
  const auto tokens = static_cast<std::size_t>(problem.max_tokens);
  const std::vector<std::int32_t> ids(tokens, 0);
  const std::vector<float> ones(tokens, 1.0F);
  FEWBIT_TRY(weights.ids, device::copy_of(ids, stream));
  FEWBIT_TRY(weights.ones, device::copy_of(ones, stream));
  FEWBIT_TRY(packer.check());
  // The host memory of all these is not needed any more.
  FEWBIT_TRY(stream.synchronize());
  return weights;
}

}  // namespace

Result<std::unique_ptr<PreparedLinear>> prepare_linear(const LinearProblem& problem,
                                                       const QuantizedTensor& stored,
                                                       const DeviceInfo& /*device*/,
                                                       Executor& /*executor*/) {
  FEWBIT_TRY(const QuantizedTensor weight, gguf_exact(stored));
  FEWBIT_TRY(device::use(0));
  FEWBIT_TRY(const DeviceInfo card, device::info(0));
  FEWBIT_TRY(const std::shared_ptr<SharedScratch> scratch, SharedScratch::get());
  ScaleRange range;
  const MoeProblem moe = moe_problem_of(problem);
  if (!format_of(moe).scaled_sums()) add_scales(weight, range);
  const bool grouped = grouped_takes(moe, range);
  FEWBIT_TRY(DenseWeights weights, put_on_device(problem, weight, scratch->stream()));
  auto linear = std::make_unique<Linear>(problem, card, scratch, std::move(weights), grouped);
  // So that calls take no memory. Also refuses what neither kernel can run.
  FEWBIT_TRY(const std::uint64_t bytes, linear->host_call_bytes(problem.max_tokens));
  const std::scoped_lock lock(scratch->mutex());
  FEWBIT_TRY(scratch->memory(bytes));
  return std::unique_ptr<PreparedLinear>(std::move(linear));
}

}  // namespace fewbit::cuda
