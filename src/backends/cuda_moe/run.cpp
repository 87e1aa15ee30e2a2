// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda_moe/prepared.hpp"
#include "core/checked.hpp"
#include "kernels/cuda/order_rows.hpp"

namespace fewbit::cuda {
namespace {

// Scratch of the streaming kernel: counters, activated rows, products.
struct StreamScratch {
  std::uint64_t activated_at = 0;
  std::uint64_t products_at = 0;
  std::uint64_t bytes = 0;
};
StreamScratch scratch_of(const StreamPlan& plan, const MoeProblem& problem) {
  const auto routes =
      static_cast<std::uint64_t>(plan.tokens) * static_cast<std::uint64_t>(plan.top_k);
  StreamScratch s;
  s.activated_at = scratch_aligned(4 * static_cast<std::uint64_t>(plan.counters));
  s.products_at =
      s.activated_at +
      scratch_aligned(2 * routes * static_cast<std::uint64_t>(problem.intermediate_size));
  s.bytes =
      s.products_at + scratch_aligned(4 * routes * static_cast<std::uint64_t>(problem.hidden_size));
  return s;
}

// Where a host call's arguments lie in the shared scratch, its workspace behind them.
struct HostCall {
  std::uint64_t x = 0, ids = 0, weights = 0, map = 0, out = 0, workspace = 0;
};
HostCall host_call(const MoeProblem& problem, std::int64_t tokens, std::int64_t map_size) {
  const auto rows = static_cast<std::uint64_t>(tokens);
  const std::uint64_t row_bytes = 2 * static_cast<std::uint64_t>(problem.hidden_size);
  const std::uint64_t routes = rows * static_cast<std::uint64_t>(problem.top_k);
  HostCall at;
  at.ids = scratch_aligned(rows * row_bytes);
  at.weights = at.ids + scratch_aligned(4 * routes);
  at.map = at.weights + scratch_aligned(4 * routes);
  at.out = at.map + scratch_aligned(4 * static_cast<std::uint64_t>(map_size));
  at.workspace = at.out + scratch_aligned(rows * row_bytes);
  return at;
}

}  // namespace

Moe::Moe(const MoeProblem& problem, const DeviceInfo& card, std::shared_ptr<SharedScratch> scratch,
         LayerWeights weights, bool grouped, PreparedInfo info)
    : problem_(problem),
      card_(card_of(card)),
      scratch_(std::move(scratch)),
      weights_(std::move(weights)),
      grouped_(grouped),
      streams_(plan_stream(format_of(problem), shape_of(problem, 1), card_).has_value()),
      info_(std::move(info)) {}

// Of host memory; a call from there works in the shared scratch.
Result<std::uint64_t> Moe::workspace_bytes(std::int64_t /*tokens*/) const {
  return std::uint64_t{0};
}

bool Moe::grouped(std::int64_t tokens) const {
  return grouped_ && (!streams_ || runs_grouped(shape_of(problem_, tokens)));
}

Result<StreamPlan> Moe::stream_plan(std::int64_t tokens) const {
  return plan_stream_part(format_of(problem_), shape_of(problem_, tokens), card_);
}

Result<std::uint64_t> Moe::device_workspace_bytes(std::int64_t tokens) const {
  if (tokens == 0) return std::uint64_t{0};
  std::uint64_t bytes = 0;
  if (streams_) {
    FEWBIT_TRY(const StreamPlan plan, stream_plan(tokens));
    bytes = scratch_of(plan, problem_).bytes;
  }
  if (!grouped(tokens)) return ordered_bytes(tokens) + bytes;
  FEWBIT_TRY(const GroupedPlan group, plan_grouped(shape_of(problem_, tokens), card_));
  return ordered_bytes(tokens) + std::max(bytes, static_cast<std::uint64_t>(group.scratch_bytes));
}

Result<std::uint64_t> Moe::host_call_bytes(std::int64_t tokens, std::int64_t map_size) const {
  FEWBIT_TRY(const std::uint64_t workspace, device_workspace_bytes(tokens));
  return host_call(problem_, tokens, map_size).workspace + workspace;
}

MoeF4Args Moe::kernel_args(const CallArgs& call) const {
  MoeF4Args args;
  args.w13 = weights_.gate_up.as<std::uint8_t>();
  args.w2 = weights_.down.as<std::uint8_t>();
  args.global13 = weights_.globals1.as<float>();
  args.global2 = weights_.globals2.as<float>();
  args.row_scale13 = weights_.rows1.as<float>();
  args.row_scale2 = weights_.rows2.as<float>();
  args.bias13 = weights_.bias1.as<float>();
  args.bias2 = weights_.bias2.as<float>();
  args.x = call.x;
  args.topk_ids = call.ids;
  args.topk_weights = call.weights;
  args.expert_map = call.map;
  args.map_size = static_cast<int>(call.map_size);
  args.out = call.out;
  args.rule = rule_of(problem_);
  return args;
}

Result<void> Moe::launch_stream(const CallArgs& call, std::byte* workspace, void* stream) const {
  FEWBIT_TRY(const StreamPlan first, stream_plan(call.tokens));
  for (std::int64_t done = 0; done < call.tokens; done += first.tokens) {
    FEWBIT_TRY(
        const StreamPlan plan,
        plan_stream(format_of(problem_),
                    shape_of(problem_, std::min<std::int64_t>(first.tokens, call.tokens - done)),
                    card_));
    const StreamScratch scratch = scratch_of(plan, problem_);
    CallArgs part = call;
    const std::int64_t rows = first.top_k / first.x_routes;  // of x, for a token
    part.x = static_cast<const std::uint16_t*>(call.x) + done * rows * problem_.hidden_size;
    part.out = static_cast<std::uint16_t*>(call.out) + done * problem_.hidden_size;
    part.ids += done * problem_.top_k;
    part.weights += done * problem_.top_k;
    MoeF4Args args = kernel_args(part);
    args.counters = reinterpret_cast<std::uint32_t*>(workspace);
    args.activated = workspace + scratch.activated_at;
    args.products = reinterpret_cast<float*>(workspace + scratch.products_at);
    FEWBIT_TRY(
        device::fill_on(workspace, 0, 4 * static_cast<std::uint64_t>(plan.counters), stream));
    FEWBIT_TRY(device::check(launch_moe_f4(format_of(problem_), plan, args, stream),
                             problem_.where + ", streaming MoE kernel"));
  }
  return {};
}

std::uint64_t Moe::ordered_bytes(std::int64_t tokens) const {
  if (weights_.order.size() == 0) return 0;
  return scratch_aligned(2 * static_cast<std::uint64_t>(tokens * problem_.top_k) *
                         static_cast<std::uint64_t>(problem_.hidden_size));
}

Result<void> Moe::order_rows(CallArgs& call, std::byte* to, void* stream) const {
  const OrderRowsArgs rows{.tokens = static_cast<int>(call.tokens),
                           .top_k = static_cast<int>(problem_.top_k),
                           .experts = static_cast<int>(problem_.num_experts),
                           .width = static_cast<int>(problem_.hidden_size),
                           .order = weights_.order.as<std::int32_t>(),
                           .to = to};
  FEWBIT_TRY(device::check(launch_order_rows(rows, kernel_args(call), stream),
                           problem_.where + ", ordering activations"));
  call.x = to;
  return {};
}

Result<void> Moe::launch(const CallArgs& from, std::byte* workspace, void* stream) const {
  CallArgs call = from;
  if (const std::uint64_t bytes = ordered_bytes(call.tokens); bytes > 0) {
    FEWBIT_TRY(order_rows(call, workspace, stream));
    workspace += bytes;
  }
  if (!grouped(call.tokens)) return launch_stream(call, workspace, stream);
  FEWBIT_TRY(const GroupedPlan plan, plan_grouped(shape_of(problem_, call.tokens), card_));
  return device::check(
      launch_moe_f4_grouped(format_of(problem_), plan, kernel_args(call), workspace, stream),
      problem_.where + ", grouped MoE kernels");
}

Result<void> Moe::run_on_host_memory(const MoeArgs& args) const {
  const std::scoped_lock lock(scratch_->mutex());
  const device::Stream& stream = scratch_->stream();
  const std::int64_t map_size = std::ssize(args.expert_map);
  FEWBIT_TRY(const std::uint64_t bytes, host_call_bytes(args.tokens, map_size));
  FEWBIT_TRY(std::byte* const memory, scratch_->memory(bytes));
  const HostCall at = host_call(problem_, args.tokens, map_size);
  FEWBIT_TRY(device::copy_to_device(memory, args.hidden.bytes, stream));
  FEWBIT_TRY(device::copy_to_device(memory + at.ids, std::as_bytes(args.topk_ids), stream));
  FEWBIT_TRY(device::copy_to_device(memory + at.weights, std::as_bytes(args.topk_weights), stream));
  CallArgs call;
  if (map_size > 0) {
    FEWBIT_TRY(device::copy_to_device(memory + at.map, std::as_bytes(args.expert_map), stream));
    call.map = reinterpret_cast<const std::int32_t*>(memory + at.map);
  }
  call.tokens = args.tokens;
  call.x = memory;
  call.ids = reinterpret_cast<const std::int32_t*>(memory + at.ids);
  call.weights = reinterpret_cast<const float*>(memory + at.weights);
  call.map_size = map_size;
  call.out = memory + at.out;
  FEWBIT_TRY(launch(call, memory + at.workspace, stream.handle()));
  FEWBIT_TRY(device::copy_to_host(args.out, memory + at.out, stream));
  return stream.synchronize();
}

Result<void> Moe::run(const MoeArgs& args, Executor& /*executor*/) const {
  if (args.amax) {
    return Error{ErrorCode::unsupported, "backend cuda_moe collects no amax", problem_.where};
  }
  if (args.hidden.device.kind == DeviceKind::cpu) return run_on_host_memory(args);
  CallArgs call;
  call.tokens = args.tokens;
  call.x = args.hidden.bytes.data();
  call.ids = args.topk_ids.data();
  call.weights = args.topk_weights.data();
  call.map = args.expert_map.data();
  call.map_size = std::ssize(args.expert_map);
  call.out = args.out.data();
  return launch(call, args.workspace.data(), args.stream);
}

}  // namespace fewbit::cuda
