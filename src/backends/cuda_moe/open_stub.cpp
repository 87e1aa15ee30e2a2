// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/cuda_moe.hpp"
#include "backends/cuda_moe/linear.hpp"

namespace fewbit::cuda {
namespace {

Error not_built(const std::string& where) {
  return Error{ErrorCode::unsupported, "this build holds no CUDA code", where};
}

}  // namespace

Result<std::unique_ptr<PreparedMoe>> open_moe(const MoeProblem& problem, const MoePlan& /*plan*/,
                                              PreparedMemory /*memory*/) {
  return not_built(problem.where);
}

Result<std::unique_ptr<PreparedMoe>> prepare_on_device(const MoeProblem& problem,
                                                       const MoeWeights& /*weights*/) {
  return not_built(problem.where);
}

Result<std::unique_ptr<PreparedLinear>> prepare_linear(const LinearProblem& problem,
                                                       const QuantizedTensor& /*weight*/,
                                                       const DeviceInfo& /*device*/,
                                                       Executor& /*executor*/) {
  return not_built(problem.where);
}

}  // namespace fewbit::cuda
