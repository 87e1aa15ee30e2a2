// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "core/checked.hpp"
#include "core/float_types.hpp"
#include "fewbit/moe.hpp"
#include "moe/router.hpp"
#include "select/backend.hpp"
#include "select/check_buffers.hpp"
#include "select/prepare_moe.hpp"
#include "select/problem.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

Error bad(const MoeProblem& problem, std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), problem.where};
}

Result<void> check_map(const MoeProblem& problem, const MoeArgs& args) {
  if (problem.expert_map && args.expert_map.empty()) {
    return bad(problem, "expert_map is empty, but the layer was prepared for one");
  }
  if (!problem.expert_map && !args.expert_map.empty()) {
    return bad(problem, fmt::format("expert_map of {} entries, but the layer was prepared for none",
                                    args.expert_map.size()));
  }
  return {};
}

Result<void> check_routes(const MoeProblem& problem, const MoeArgs& args) {
  if (!args.router_logits.empty()) {
    return bad(problem, "both router_logits and topk_ids, or no router for them");
  }
  const auto routes =
      static_cast<std::size_t>(args.tokens) * static_cast<std::size_t>(problem.top_k);
  if (args.topk_ids.size() != routes) {
    return bad(problem, fmt::format("topk_ids hold {} elements, expected {} tokens * top_k {}",
                                    args.topk_ids.size(), args.tokens, problem.top_k));
  }
  if (args.topk_weights.size() != routes) {
    return bad(problem, fmt::format("topk_weights hold {} elements, expected {} tokens * top_k {}",
                                    args.topk_weights.size(), args.tokens, problem.top_k));
  }
  return {};
}

// Of a call that leaves the choice to the layer's router; those of a projection may be missing.
Result<void> check_logits(const MoeProblem& problem, const MoeArgs& args, bool projects) {
  if (projects && args.router_logits.empty()) return {};
  const std::int64_t experts = experts_to_choose(problem);
  if (args.router_logits.size() ==
      static_cast<std::size_t>(args.tokens) * static_cast<std::size_t>(experts)) {
    return {};
  }
  return bad(problem, fmt::format("router_logits hold {} elements, expected {} tokens * {} experts",
                                  args.router_logits.size(), args.tokens, experts));
}

Result<void> check_projection(const MoeProblem& problem, const QuantizedTensor& matrix) {
  const std::int64_t experts = experts_to_choose(problem);
  if (matrix.n == 0) return {};
  if (matrix.n != experts || matrix.k != problem.hidden_size) {
    return bad(problem, fmt::format("router projection is [{}, {}], expected [{}, {}]", matrix.n,
                                    matrix.k, experts, problem.hidden_size));
  }
  if (matrix.scheme.quantized() || !is_16_or_32_bit_float(matrix.scheme.weight) ||
      matrix.global_scale != 1.0F || !matrix.pre_quant_scale.view.shape.empty()) {
    return Error{ErrorCode::unsupported,
                 fmt::format("router projection in {}, expected plain bf16, f16 or f32",
                             scheme_text(matrix.scheme)),
                 problem.where};
  }
  return check_quantized(matrix);
}

Result<void> check_amax(const MoeProblem& problem, const AmaxTable& amax) {
  if (amax.experts < problem.num_experts) {
    return bad(problem, fmt::format("amax table of {} experts, expected at least {}", amax.experts,
                                    problem.num_experts));
  }
  if (amax.layer < 0 || amax.layer >= amax.layers) {
    return bad(problem,
               fmt::format("amax layer {} of a table of {} layers", amax.layer, amax.layers));
  }
  const auto entries = checked_mul(amax.layers, amax.experts);
  const auto values = entries ? checked_mul(*entries, std::int64_t{2}) : entries;
  if (!values || amax.values.size() != static_cast<std::size_t>(*values)) {
    return bad(problem,
               fmt::format("amax table holds {} values, expected {} layers * {} experts * 2",
                           amax.values.size(), amax.layers, amax.experts));
  }
  return {};
}

}  // namespace

MoeLayer::MoeLayer(MoeProblem problem, std::unique_ptr<PreparedMoe> prepared)
    : problem_(std::move(problem)), prepared_(std::move(prepared)) {}
MoeLayer::MoeLayer(MoeLayer&&) noexcept = default;
MoeLayer& MoeLayer::operator=(MoeLayer&&) noexcept = default;
MoeLayer::~MoeLayer() = default;

Result<MoeLayer> MoeLayer::prepare(const Selection& selection, const MoeProblem& problem,
                                   const MoeWeights& weights, const DeviceInfo& device,
                                   Executor& executor) {
  FEWBIT_TRY(const Backend* backend, selected_backend(selection, problem, device));
  FEWBIT_TRY(check_weights(problem, weights));
  FEWBIT_TRY(auto prepared, prepare_moe(*backend, problem, weights, executor));
  return MoeLayer(problem, std::move(prepared));
}

Result<std::uint64_t> MoeLayer::workspace_bytes(std::int64_t tokens) const {
  FEWBIT_TRY(check_tokens(problem_.where, tokens, problem_.max_tokens));
  return prepared_->workspace_bytes(tokens);
}

Result<std::uint64_t> MoeLayer::device_workspace_bytes(std::int64_t tokens) const {
  FEWBIT_TRY(check_tokens(problem_.where, tokens, problem_.max_tokens));
  const auto bytes = prepared_->device_workspace_bytes(tokens);
  if (bytes || !bytes.error().where.empty()) return bytes;
  return Error{bytes.error().code, bytes.error().what, problem_.where};
}

Result<void> MoeLayer::add_router(const MoeRouter& router) {
  FEWBIT_TRY(check_projection(problem_, router.projection));
  const Result<void> checked =
      check_router(router.params, experts_to_choose(problem_), router.bias);
  if (!checked) return Error{checked.error().code, checked.error().what, problem_.where};
  if (router.params.top_k != problem_.top_k) {
    return bad(problem_, fmt::format("router's top_k {}, expected the layer's {}",
                                     router.params.top_k, problem_.top_k));
  }
  const Result<void> added = prepared_->add_router(router);
  if (!added) return Error{added.error().code, added.error().what, problem_.where};
  router_ = router.projection.n > 0 ? Router::projects : Router::of_logits;
  return {};
}

Result<void> MoeLayer::run(const MoeArgs& args, Executor& executor) const {
  const DeviceKind memory = args.hidden.device.kind;
  FEWBIT_TRY(const std::uint64_t needed, memory == DeviceKind::cpu
                                             ? workspace_bytes(args.tokens)
                                             : device_workspace_bytes(args.tokens));
  const Matrix rows{
      .rows = args.tokens, .cols = problem_.hidden_size, .dtype = problem_.activation_dtype};
  FEWBIT_TRY(check_input(problem_.where, "hidden", args.hidden, rows, memory));
  FEWBIT_TRY(check_output(problem_.where, "out", args.out, rows));
  FEWBIT_TRY(check_apart(problem_.where, args.hidden.bytes, args.out, args.workspace));
  if (router_ != Router::none && args.topk_ids.empty() && args.topk_weights.empty()) {
    FEWBIT_TRY(check_logits(problem_, args, router_ == Router::projects));
  } else {
    FEWBIT_TRY(check_routes(problem_, args));
  }
  FEWBIT_TRY(check_map(problem_, args));
  if (args.amax) FEWBIT_TRY(check_amax(problem_, *args.amax));
  FEWBIT_TRY(check_workspace(problem_.where, args.workspace, needed,
                             memory == DeviceKind::cpu ? 64 : 1024));
  if (args.tokens == 0) return {};
  return prepared_->run(args, executor);
}

PreparedInfo MoeLayer::info() const { return prepared_->info(); }

}  // namespace fewbit
