// SPDX-License-Identifier: Apache-2.0
#include "model/moe_block.hpp"

#include <algorithm>
#include <utility>

#include "model/element.hpp"

namespace fewbit {

struct MoeBlock::Buffers {
  // The first three only with a router here.
  std::span<float> logits;      // [tokens, experts]
  std::span<std::int32_t> ids;  // [tokens, top_k]
  std::span<float> weights;     // [tokens, top_k]
  std::span<std::byte> inner;   // of the router's projection, then of the experts
};

MoeBlock::MoeBlock(MoeBlockWeights weights, const RouterParams& router)
    : weights_(std::move(weights)), router_(router) {}

Result<MoeBlock::Buffers> MoeBlock::carve(Carver& carver, std::int64_t tokens) const {
  Buffers buffers;
  std::uint64_t router = 0;
  if (weights_.router) {
    buffers.logits = carver.take<float>(tokens, weights_.router->problem().n);
    buffers.ids = carver.take<std::int32_t>(tokens, router_.top_k);
    buffers.weights = carver.take<float>(tokens, router_.top_k);
    FEWBIT_TRY(router, weights_.router->workspace_bytes(tokens));
  }
  FEWBIT_TRY(const std::uint64_t experts, weights_.experts.workspace_bytes(tokens));
  buffers.inner = carver.take<std::byte>(static_cast<std::int64_t>(std::max(router, experts)));
  if (!carver.bytes()) {
    return Error{ErrorCode::limit, "the workspace of the experts overflows",
                 weights_.experts.problem().where};
  }
  return buffers;
}

Result<std::uint64_t> MoeBlock::workspace_bytes(std::int64_t tokens) const {
  Carver measure;
  FEWBIT_TRY(carve(measure, tokens));
  return *measure.bytes();
}

Result<void> MoeBlock::route_here(const Step& step, const TensorView& hidden,
                                  const Buffers& buffers) const {
  const LinearLayer& router = *weights_.router;
  FEWBIT_TRY(router.run(step.tokens, hidden, std::as_writable_bytes(buffers.logits), buffers.inner,
                        *step.executor));
  const Result<void> routed = route(router_, step.tokens, router.problem().n, buffers.logits,
                                    weights_.bias, buffers.ids, buffers.weights);
  if (!routed) return Error{routed.error().code, routed.error().what, router.problem().where};
  return {};
}

Result<void> MoeBlock::run(const Step& step, std::span<const std::byte> x,
                           std::span<std::byte> y) const {
  Carver carver(step.workspace);
  FEWBIT_TRY(const Buffers buffers, carve(carver, step.tokens));
  MoeArgs args;
  args.tokens = step.tokens;
  args.hidden = activation_view(step.dtype, step.tokens, weights_.experts.problem().hidden_size, x);
  if (weights_.router) FEWBIT_TRY(route_here(step, args.hidden, buffers));
  args.topk_ids = buffers.ids;
  args.topk_weights = buffers.weights;
  args.out = y;
  args.workspace = buffers.inner;
  return weights_.experts.run(args, *step.executor);
}

}  // namespace fewbit
