// SPDX-License-Identifier: Apache-2.0
// A MoE layer in device memory.
#pragma once

#include <optional>

#include "backends/cuda_moe/cuda_moe.hpp"
#include "backends/cuda_moe/router.hpp"
#include "backends/cuda_moe/shared_scratch.hpp"

namespace fewbit::cuda {

struct LayerWeights {
  device::Buffer gate_up, down;       // [experts]
  device::Buffer globals1, globals2;  // f32 [experts, 2], [experts]; with f4_global_factor
  device::Buffer rows1, rows2;        // scales of rows, as the biases; or none
  device::Buffer bias1, bias2;        // f32 [experts, 2, rows of a half], [experts, hidden]
  device::Buffer order;               // i32 [experts, hidden] of gate and up, or none
};

// Pointers of a call, all of one kind of memory.
struct CallArgs {
  std::int64_t tokens = 0;
  const void* x = nullptr;
  const std::int32_t* ids = nullptr;  // none: the layer's router chooses
  const float* weights = nullptr;
  const float* logits = nullptr;  // of its router, or none
  const std::int32_t* map = nullptr;
  std::int64_t map_size = 0;
  void* out = nullptr;
  bool counters_zero = false;  // of the streaming kernel's first launch
};

class Moe final : public PreparedMoe {
 public:
  Moe(const MoeProblem& problem, const DeviceInfo& card, std::shared_ptr<SharedScratch> scratch,
      LayerWeights weights, bool grouped, PreparedInfo info);

  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<std::uint64_t> device_workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const MoeArgs& args, Executor& executor) const override;
  PreparedInfo info() const override { return info_; }
  Result<void> add_router(const MoeRouter& router) override;

  // Bytes that run() takes of the shared scratch for a call from the host.
  Result<std::uint64_t> host_call_bytes(std::int64_t tokens, std::int64_t map_size) const;
  // So that calls take no memory.
  Result<void> reserve_host_calls() const;

 private:
  // The most tokens, up to `tokens`, that the streaming kernel takes at once.
  Result<StreamPlan> stream_plan(std::int64_t tokens) const;
  bool grouped(std::int64_t tokens) const;
  Result<void> run_on_host_memory(const MoeArgs& args) const;
  Result<void> launch(const CallArgs& call, std::byte* workspace, void* stream) const;
  // Logits that a call on the host may bring.
  std::int64_t logits_of(std::int64_t tokens) const {
    return router_ ? tokens * experts_to_choose(problem_) : 0;
  }
  std::uint64_t router_bytes(std::int64_t tokens) const {
    return router_ ? router_->bytes(tokens) : 0;
  }
  // The call with the routes that its router chooses; rows are divided for the plan, where there is
  // one.
  Result<void> route(CallArgs& call, std::byte* workspace, const GroupedPlan* plan, void* scratch,
                     void* stream) const;
  // With act-order: x of every route.
  std::uint64_t ordered_bytes(std::int64_t tokens) const;
  Result<void> order_rows(CallArgs& call, std::byte* to, void* stream) const;
  Result<void> launch_stream(const CallArgs& call, std::byte* workspace, void* stream) const;
  MoeF4Args kernel_args(const CallArgs& call) const;

  MoeProblem problem_;
  StreamCard card_;
  std::shared_ptr<SharedScratch> scratch_;  // outlives the weights, which are of its stream
  LayerWeights weights_;
  std::optional<DeviceRouter> router_;
  bool grouped_;  // the weights may go through grouped products
  bool streams_;  // the layer fits the streaming kernel
  PreparedInfo info_;
};

}  // namespace fewbit::cuda
