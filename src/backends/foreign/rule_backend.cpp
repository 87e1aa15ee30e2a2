// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit::foreign {

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

std::string engine_decides(const MoeProblem& /*problem*/, const DeviceInfo& /*device*/,
                           std::int64_t /*tokens*/) {
  return "as the engine decides";
}

}  // namespace fewbit::foreign
