// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backends/reference/prepared.hpp"
#include "backends/reference/reference.hpp"

namespace fewbit::reference {
namespace {

PreparedInfo info_of(std::uint64_t mapped_bytes) {
  return {.backend = reference_backend.name,
          .layout = reference_backend.layout,
          .owned_bytes = 0,
          .mapped_bytes = mapped_bytes};
}

Error too_large(const std::string& where, std::int64_t tokens) {
  return Error{ErrorCode::limit,
               fmt::format("workspace of {} tokens needs more than 2^64 - 1 bytes", tokens), where};
}

}  // namespace

MoeScratch carve(const MoeProblem& problem, std::int64_t tokens, Carver& carver) {
  const std::int64_t routes = tokens * problem.top_k;
  const std::int64_t row = 2 * std::max(problem.hidden_size, problem.intermediate_size);
  return {.counts = carver.take<std::int32_t>(problem.num_experts),
          .offsets = carver.take<std::int32_t>(problem.num_experts + 1),
          .routes = carver.take<std::int32_t>(routes),
          .hidden = carver.take<float>(tokens, problem.hidden_size),
          .activated = carver.take<float>(routes, problem.intermediate_size),
          .rows = carver.take<float>(tasks, row),
          .sums = carver.take<double>(tasks, routes)};
}

LinearScratch carve(const LinearProblem& problem, std::int64_t tokens, Carver& carver) {
  return {.x = carver.take<float>(tokens, problem.k), .rows = carver.take<float>(tasks, problem.k)};
}

ReferenceMoe::ReferenceMoe(MoeProblem problem, std::span<const ExpertWeights> experts,
                           PreparedMemory memory)
    : problem_(std::move(problem)),
      owners_(std::move(memory.owners)),
      info_(info_of(memory.mapped_bytes)) {
  info_.owned_bytes = memory.owned_bytes;
  experts_.reserve(experts.size());
  for (const ExpertWeights& expert : experts) {
    experts_.push_back({.gate = expert.gate ? std::optional<RowReader>(*expert.gate) : std::nullopt,
                        .up = RowReader(expert.up),
                        .down = RowReader(expert.down),
                        .gate_bias = expert.gate_bias,
                        .up_bias = expert.up_bias,
                        .down_bias = expert.down_bias});
  }
}

Result<std::uint64_t> ReferenceMoe::workspace_bytes(std::int64_t tokens) const {
  constexpr std::int64_t most_routes = std::numeric_limits<std::int32_t>::max();
  if (tokens > most_routes / problem_.top_k) {
    return Error{ErrorCode::limit,
                 fmt::format("{} tokens * top_k {}, expected at most {} routes", tokens,
                             problem_.top_k, most_routes),
                 problem_.where};
  }
  Carver carver;
  carve(problem_, tokens, carver);
  if (!carver.bytes()) return too_large(problem_.where, tokens);
  return *carver.bytes();
}

ReferenceLinear::ReferenceLinear(LinearProblem problem, const QuantizedTensor& weight)
    : problem_(std::move(problem)), weight_(weight) {}

Result<std::uint64_t> ReferenceLinear::workspace_bytes(std::int64_t tokens) const {
  Carver carver;
  carve(problem_, tokens, carver);
  if (!carver.bytes()) return too_large(problem_.where, tokens);
  return *carver.bytes();
}

PreparedInfo ReferenceLinear::info() const { return info_of(weight_.bytes()); }

Error unreadable_row(const std::string& where) {
  return Error{ErrorCode::corrupt, "a weight row could not be dequantized", where};
}

Result<std::unique_ptr<PreparedLinear>> prepare_linear(const LinearProblem& problem,
                                                       const QuantizedTensor& weight,
                                                       const DeviceInfo& /*device*/,
                                                       Executor& /*executor*/) {
  return std::unique_ptr<PreparedLinear>(std::make_unique<ReferenceLinear>(problem, weight));
}

}  // namespace fewbit::reference
