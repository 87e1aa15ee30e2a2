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
  std::uint64_t x = 0, ids = 0, weights = 0, map = 0, logits = 0, out = 0, workspace = 0;
};
HostCall host_call(const MoeProblem& problem, std::int64_t tokens, std::int64_t map_size,
                   std::int64_t logits) {
  const auto rows = static_cast<std::uint64_t>(tokens);
  const std::uint64_t row_bytes = 2 * static_cast<std::uint64_t>(problem.hidden_size);
  const std::uint64_t routes = rows * static_cast<std::uint64_t>(problem.top_k);
  HostCall at;
  at.ids = scratch_aligned(rows * row_bytes);
  at.weights = at.ids + scratch_aligned(4 * routes);
  at.map = at.weights + scratch_aligned(4 * routes);
  at.logits = at.map + scratch_aligned(4 * static_cast<std::uint64_t>(map_size));
  at.out = at.logits + scratch_aligned(4 * static_cast<std::uint64_t>(logits));
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
  const std::uint64_t beside = router_bytes(tokens) + ordered_bytes(tokens);
  std::uint64_t bytes = 0;
  if (streams_) {
    FEWBIT_TRY(const StreamPlan plan, stream_plan(tokens));
    bytes = scratch_of(plan, problem_).bytes;
  }
  if (!grouped(tokens)) return beside + bytes;
  FEWBIT_TRY(const GroupedPlan group, plan_grouped(shape_of(problem_, tokens), card_));
  return beside + std::max(bytes, static_cast<std::uint64_t>(group.scratch_bytes));
}

Result<std::uint64_t> Moe::host_call_bytes(std::int64_t tokens, std::int64_t map_size) const {
  FEWBIT_TRY(const std::uint64_t workspace, device_workspace_bytes(tokens));
  return host_call(problem_, tokens, map_size, logits_of(tokens)).workspace + workspace;
}

Result<void> Moe::reserve_host_calls() const {
  FEWBIT_TRY(const std::uint64_t bytes,
             host_call_bytes(problem_.max_tokens, problem_.routed_experts));
  const std::scoped_lock lock(scratch_->mutex());
  FEWBIT_TRY(scratch_->memory(bytes));
  return {};
}

Result<void> Moe::add_router(const MoeRouter& router) {
  FEWBIT_TRY(router_, DeviceRouter::create(problem_, router, scratch_->stream()));
  return reserve_host_calls();
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
  args.x_type = activation_type(problem_.activation_dtype);
  args.topk_ids = call.ids;
  args.topk_weights = call.weights;
  args.expert_map = call.map;
  args.map_size = static_cast<int>(call.map_size);
  args.out = call.out;
  args.out_type = out_type(problem_.activation_dtype);
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
    if (done > 0 || !call.counters_zero) {
      FEWBIT_TRY(
          device::fill_on(workspace, 0, 4 * static_cast<std::uint64_t>(plan.counters), stream));
    }
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

Result<void> Moe::route(CallArgs& call, std::byte* workspace, const GroupedPlan* plan,
                        void* scratch, void* stream) const {
  FEWBIT_TRY(RouterArgs router, router_->begin({.tokens = call.tokens,
                                                .x = call.x,
                                                .logits = call.logits,
                                                .workspace = workspace,
                                                .stream = stream}));
  call.ids = router.ids;
  call.weights = router.weights;
  const std::string where = problem_.where + ", router";
  if (plan != nullptr) {
    return device::check(launch_router_grouped(router, *plan, kernel_args(call), scratch, stream),
                         where);
  }
  FEWBIT_TRY(const StreamPlan first, stream_plan(call.tokens));
  router.zeros = static_cast<std::uint32_t*>(scratch);
  router.zero_words = first.counters;
  call.counters_zero = true;
  return device::check(launch_router(router, stream), where);
}

Result<void> Moe::launch(const CallArgs& from, std::byte* workspace, void* stream) const {
  CallArgs call = from;
  std::byte* const ordered = workspace + router_bytes(call.tokens);
  std::byte* const scratch = ordered + ordered_bytes(call.tokens);
  GroupedPlan plan;
  const bool many = grouped(call.tokens);
  if (many) {
    FEWBIT_TRY(plan, plan_grouped(shape_of(problem_, call.tokens), card_));
  }
  const bool chooses = call.ids == nullptr;
  if (chooses) FEWBIT_TRY(route(call, workspace, many ? &plan : nullptr, scratch, stream));
  if (scratch > ordered) FEWBIT_TRY(order_rows(call, ordered, stream));
  if (!many) return launch_stream(call, scratch, stream);
  MoeF4Args args = kernel_args(call);
  args.rows_placed = chooses;
  return device::check(launch_moe_f4_grouped(format_of(problem_), plan, args, scratch, stream),
                       problem_.where + ", grouped MoE kernels");
}

Result<void> Moe::run_on_host_memory(const MoeArgs& args) const {
  const std::scoped_lock lock(scratch_->mutex());
  const device::Stream& stream = scratch_->stream();
  const std::int64_t map_size = std::ssize(args.expert_map);
  FEWBIT_TRY(const std::uint64_t bytes, host_call_bytes(args.tokens, map_size));
  FEWBIT_TRY(std::byte* const memory, scratch_->memory(bytes));
  const HostCall at = host_call(problem_, args.tokens, map_size, logits_of(args.tokens));
  // Where a span's copy on the device lies; nowhere, if it is empty.
  const auto put = [&](std::uint64_t where, std::span<const std::byte> from) -> Result<std::byte*> {
    if (from.empty()) return nullptr;
    FEWBIT_TRY(device::copy_to_device(memory + where, from, stream));
    return memory + where;
  };
  CallArgs call;
  call.tokens = args.tokens;
  FEWBIT_TRY(call.x, put(at.x, args.hidden.bytes));
  FEWBIT_TRY(std::byte* const ids, put(at.ids, std::as_bytes(args.topk_ids)));
  FEWBIT_TRY(std::byte* const weights, put(at.weights, std::as_bytes(args.topk_weights)));
  FEWBIT_TRY(std::byte* const map, put(at.map, std::as_bytes(args.expert_map)));
  FEWBIT_TRY(std::byte* const logits, put(at.logits, std::as_bytes(args.router_logits)));
  call.ids = reinterpret_cast<const std::int32_t*>(ids);
  call.weights = reinterpret_cast<const float*>(weights);
  call.map = reinterpret_cast<const std::int32_t*>(map);
  call.map_size = map_size;
  call.logits = reinterpret_cast<const float*>(logits);
  call.out = memory + at.out;
  FEWBIT_TRY(launch(call, memory + at.workspace, stream.handle()));
  FEWBIT_TRY(device::copy_to_host(args.out, memory + at.out, stream));
  RouterState state = {};
  if (ids == nullptr) {
    FEWBIT_TRY(device::copy_to_host(std::as_writable_bytes(std::span(&state, 1)),
                                    memory + at.workspace, stream));
  }
  FEWBIT_TRY(stream.synchronize());
  return check_fault(state.fault, experts_to_choose(problem_), problem_.where);
}

Result<void> Moe::run(const MoeArgs& args, Executor& /*executor*/) const {
  if (args.amax) {
    return Error{ErrorCode::unsupported, "backend cuda_moe collects no amax", problem_.where};
  }
  if (args.hidden.device.kind == DeviceKind::cpu) return run_on_host_memory(args);
  CallArgs call;
  call.tokens = args.tokens;
  call.x = args.hidden.bytes.data();
  call.ids = args.topk_ids.empty() ? nullptr : args.topk_ids.data();
  call.weights = args.topk_weights.data();
  call.map = args.expert_map.data();
  call.map_size = std::ssize(args.expert_map);
  call.logits = args.router_logits.empty() ? nullptr : args.router_logits.data();
  call.out = args.out.data();
  return launch(call, args.workspace.data(), args.stream);
}

}  // namespace fewbit::cuda
