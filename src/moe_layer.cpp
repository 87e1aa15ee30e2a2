// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "core/checked.hpp"
#include "fewbit/moe.hpp"
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

Result<void> check_routes(const MoeProblem& problem, const MoeArgs& args) {
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
  if (problem.expert_map && args.expert_map.empty()) {
    return bad(problem, "expert_map is empty, but the layer was prepared for one");
  }
  if (!problem.expert_map && !args.expert_map.empty()) {
    return bad(problem, fmt::format("expert_map of {} entries, but the layer was prepared for none",
                                    args.expert_map.size()));
  }
  return {};
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
  FEWBIT_TRY(check_routes(problem_, args));
  if (args.amax) FEWBIT_TRY(check_amax(problem_, *args.amax));
  FEWBIT_TRY(check_workspace(problem_.where, args.workspace, needed,
                             memory == DeviceKind::cpu ? 64 : 1024));
  if (args.tokens == 0) return {};
  return prepared_->run(args, executor);
}

PreparedInfo MoeLayer::info() const { return prepared_->info(); }

}  // namespace fewbit
