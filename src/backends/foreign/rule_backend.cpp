// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit::foreign {

Result<void> refuse_to_prepare(const MoeProblem& problem) {
  return Error{ErrorCode::unsupported,
               "its engine reads the weights as the checkpoint has them, or lays them out in a way "
               "of its own: nothing is prepared for it",
               problem.where};
}

Result<MoePlan> refuse_to_plan(const MoeProblem& problem, const ExpertWeights& /*first*/) {
  return refuse_to_prepare(problem).error();
}

Result<void> refuse_to_pack(const MoeProblem& problem, const MoePlan& /*plan*/,
                            const ExpertWeights& /*expert*/, ExpertSpans /*to*/) {
  return refuse_to_prepare(problem).error();
}

Result<std::unique_ptr<PreparedLinear>> refuse_to_run(const LinearProblem& problem,
                                                      const QuantizedTensor& /*weight*/,
                                                      const DeviceInfo& /*device*/,
                                                      Executor& /*executor*/) {
  return Error{ErrorCode::unsupported, "the layout is for another engine's kernels: not run here",
               problem.where};
}

std::vector<Refusal> refuse_linear(const LinearProblem& /*problem*/, const DeviceInfo& /*device*/) {
  return {{Reason::engine, "experts", "a dense layer"}};
}

std::string engine_decides(const MoeProblem& /*problem*/, std::int64_t /*tokens*/) {
  return "as the engine decides";
}

}  // namespace fewbit::foreign
