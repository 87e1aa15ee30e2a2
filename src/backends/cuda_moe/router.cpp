// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/router.hpp"

#include <utility>

namespace fewbit::cuda {
namespace {

PlainType plain_type(DType dtype) {
  if (dtype == DType::f32) return PlainType::f32;
  return dtype == DType::f16 ? PlainType::f16 : PlainType::bf16;
}

}  // namespace

Result<DeviceRouter> DeviceRouter::create(const MoeProblem& problem, const MoeRouter& router,
                                          const device::Stream& stream) {
  FEWBIT_TRY(check_router_sizes(problem, router));
  const QuantizedTensor& matrix = router.projection;
  DeviceRouter made;
  made.where_ = problem.where;
  made.shape_ = {.experts = experts_to_choose(problem),
                 .top_k = router.params.top_k,
                 .projects = matrix.n > 0};
  made.args_ = router_args(router.params, made.shape_.experts);
  if (!router.bias.empty()) {
    FEWBIT_TRY(made.bias_, device::copy_of(router.bias, stream));
    made.args_.bias = made.bias_.as<float>();
  }
  if (made.shape_.projects) {
    FEWBIT_TRY(made.matrix_, device::copy_of(matrix.codes.view.bytes, stream));
    made.projection_.experts = made.args_.experts;
    made.projection_.hidden = static_cast<int>(problem.hidden_size);
    made.projection_.x_type = plain_type(problem.activation_dtype);
    made.projection_.w_type = plain_type(matrix.scheme.weight);
    made.projection_.w = made.matrix_.data();
  }
  FEWBIT_TRY(stream.synchronize());
  return made;
}

Result<RouterArgs> DeviceRouter::begin(const Call& call) const {
  const RouterScratch at = router_scratch(shape_, call.tokens);
  RouterArgs args = args_;
  args.tokens = static_cast<int>(call.tokens);
  args.logits = call.logits;
  args.ids = reinterpret_cast<std::int32_t*>(call.workspace + at.ids);
  args.weights = reinterpret_cast<float*>(call.workspace + at.weights);
  args.state = reinterpret_cast<RouterState*>(call.workspace);
  FEWBIT_TRY(device::fill_on(call.workspace, 0, sizeof(RouterState), call.stream));
  if (args.logits != nullptr) return args;
  RouterProjection projection = projection_;
  projection.tokens = args.tokens;
  projection.x = call.x;
  projection.logits = reinterpret_cast<float*>(call.workspace + at.logits);
  args.logits = projection.logits;
  FEWBIT_TRY(
      device::check(launch_router_logits(projection, call.stream), where_ + ", router's logits"));
  return args;
}

}  // namespace fewbit::cuda
