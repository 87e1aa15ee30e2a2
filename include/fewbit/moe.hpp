// SPDX-License-Identifier: Apache-2.0
// Steps 5 and 6, prepare and run: one MoE layer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fewbit/executor.hpp"
#include "fewbit/quantized.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {

// max |x| over the tokens routed to an expert, raised into table[layer][expert][0], and max |act|
// of its activated rows into [layer][expert][1].
struct AmaxTable {
  std::span<float> values;  // [layers, experts, 2], not negative
  std::int64_t layers = 0;
  std::int64_t experts = 0;  // >= num_experts of the problem; the table's own stride
  std::int64_t layer = 0;
};

// The router of a layer that MoeLayer::add_router takes; E experts of all ranks.
struct MoeRouter {
  RouterParams params;
  // [E, H] in bf16, f16 or f32: logits are hidden * projection^T, summed in f32. n = 0: none, every
  // call brings its logits.
  QuantizedTensor projection;
  std::vector<float> bias;  // [E] or empty, as in route()
};

// Borrowed arguments of one call; T tokens, H hidden_size, K top_k.
struct MoeArgs {
  std::int64_t tokens = 0;
  TensorView hidden;                       // [T, H] of problem.activation_dtype
  std::span<const std::int32_t> topk_ids;  // [T, K]; ids outside the experts add nothing
  std::span<const float> topk_weights;     // [T, K]
  // With topk_ids and topk_weights empty the layer's own router chooses, from these [T, E], or,
  // where they are empty, from its projection of hidden.
  std::span<const float> router_logits;
  std::span<const std::int32_t>
      expert_map;            // global id -> local expert or -1; empty: ids are local
  std::span<std::byte> out;  // [T, H] of problem.activation_dtype
  std::optional<AmaxTable> amax;
  std::span<std::byte> workspace;  // >= workspace_bytes(T), 64-byte aligned
  // With hidden.device a CUDA device everything above lies in its memory, workspace at least
  // device_workspace_bytes(T) and 1024-byte aligned; the work is put on this cudaStream_t, and run
  // does not wait for it.
  void* stream = nullptr;
};

// What a prepared layer holds.
struct PreparedInfo {
  std::string backend;
  std::string layout;              // "cpu_f4_lane16", "row_major"
  std::uint64_t owned_bytes = 0;   // memory of its own
  std::uint64_t mapped_bytes = 0;  // read in place from the checkpoint
};

class PreparedMoe;

// One layer, prepared for the selected backend. Arithmetic: weights as stored, activations in
// activation_dtype, f32 accumulation (the reference: double), scales and router weights applied in
// f32, one rounding per stored result.
class MoeLayer {
 public:
  // The weights may be dropped afterwards unless info().mapped_bytes > 0 (then their owners are
  // kept). Errors: invalid_argument (sizes disagree, both numbers), limit.
  static Result<MoeLayer> prepare(const Selection& selection, const MoeProblem& problem,
                                  const MoeWeights& weights, const DeviceInfo& device,
                                  Executor& executor);
  // A layer that a backend has opened from prepared weights.
  MoeLayer(MoeProblem problem, std::unique_ptr<PreparedMoe> prepared);
  MoeLayer(MoeLayer&&) noexcept;
  MoeLayer& operator=(MoeLayer&&) noexcept;
  ~MoeLayer();

  // Error invalid_argument when tokens > problem.max_tokens; limit on overflow.
  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const;
  // Of CUDA memory, for calls whose arguments are there. Errors: as workspace_bytes;
  // invalid_argument: the layer runs on a CPU.
  Result<std::uint64_t> device_workspace_bytes(std::int64_t tokens) const;
  // Puts a router beside the experts, so that calls may leave out topk_ids and topk_weights, and
  // logits stay where the experts are. Calls must wait until it is done; workspaces grow by it.
  // Errors: unsupported (backends of the CPU: use route(); sizes that the device's router doesn't
  // take, both numbers), invalid_argument (sizes that disagree, and those of route()).
  Result<void> add_router(const MoeRouter& router);
  // Checks every argument once, allocates nothing. out is complete when it returns, but for calls
  // on CUDA memory. With its own router also the errors of route() for logits; on CUDA memory the
  // results of tokens with such logits are NaN instead.
  Result<void> run(const MoeArgs& args, Executor& executor) const;

  const MoeProblem& problem() const { return problem_; }
  PreparedInfo info() const;

 private:
  enum class Router { none, of_logits, projects };
  MoeProblem problem_;
  std::unique_ptr<PreparedMoe> prepared_;
  Router router_ = Router::none;
};

// Router: top-k experts and weights from logits; scores in double, weights rounded once to f32.
// logits [T, E] f32; bias [E] or empty (e_score_correction_bias: chooses, never weighs).
// ids [T, K], in order of falling selection score, ties to the lower id; weights [T, K].
// With groups only experts of the best top_groups are chosen; a group's score is the sum of its two
// largest biased scores, or, without a bias, its largest score. When all chosen scores are 0, the
// weights are 0. Errors: invalid_argument (sizes, top_k > experts, groups that don't divide or hold
// fewer than top_k experts, a logit that is NaN or +inf, a softmax of -inf only, a bias that isn't
// finite).
Result<void> route(const RouterParams& params, std::int64_t tokens, std::int64_t experts,
                   std::span<const float> logits, std::span<const float> bias,
                   std::span<std::int32_t> ids, std::span<float> weights);

}  // namespace fewbit
