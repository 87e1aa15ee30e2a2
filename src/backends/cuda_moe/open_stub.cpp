// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/cuda_moe.hpp"

namespace fewbit::cuda {
namespace {

Error not_built(const MoeProblem& problem) {
  return Error{ErrorCode::unsupported, "this build holds no CUDA code", problem.where};
}

}  // namespace

Result<std::unique_ptr<PreparedMoe>> open_moe(const MoeProblem& problem, const MoePlan& /*plan*/,
                                              PreparedMemory /*memory*/) {
  return not_built(problem);
}

Result<std::unique_ptr<PreparedMoe>> prepare_on_device(const MoeProblem& problem,
                                                       const MoeWeights& /*weights*/) {
  return not_built(problem);
}

}  // namespace fewbit::cuda
