// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/router_plan.hpp"

#include <fmt/format.h>

namespace fewbit::cuda {
namespace {

RouterScore score_of(Score score) {
  switch (score) {
    case Score::softmax:
      return RouterScore::softmax;
    case Score::sigmoid:
      return RouterScore::sigmoid;
    case Score::sqrt_softplus:
      return RouterScore::sqrt_softplus;
  }
  return RouterScore::softmax;
}

}  // namespace

Result<void> check_router_sizes(const MoeProblem& problem, const MoeRouter& router) {
  const struct {
    const char* name;
    std::int64_t size, most;
  } sizes[] = {{"experts", experts_to_choose(problem), router_max_experts},
               {"top_k", router.params.top_k, router_max_top_k},
               {"num_groups", router.params.num_groups, router_max_groups}};
  for (const auto& [name, size, most] : sizes) {
    if (size <= most) continue;
    return Error{ErrorCode::unsupported,
                 fmt::format("router with {} {}, on a device at most {}", name, size, most),
                 problem.where};
  }
  if (router.projection.n > 0 && problem.hidden_size % 8 != 0) {
    return Error{
        ErrorCode::unsupported,
        fmt::format("router with hidden_size {}, on a device a multiple of 8", problem.hidden_size),
        problem.where};
  }
  return {};
}

RouterArgs router_args(const RouterParams& params, std::int64_t experts) {
  RouterArgs args;
  args.experts = static_cast<int>(experts);
  args.top_k = params.top_k;
  args.groups = params.num_groups;
  args.top_groups = params.top_groups;
  args.score = score_of(params.score);
  args.renormalize = params.renormalize;
  args.scaling = params.scaling;
  return args;
}

Result<void> check_fault(unsigned long long fault, std::int64_t experts, const std::string& where) {
  if (fault == 0) return {};
  const unsigned long long place = ~fault;
  const unsigned long long token = place >> 12;
  const auto expert = static_cast<int>(place & router_all_masked);
  if (expert == router_all_masked) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("all {} logits of token {} are -inf: no softmax", experts, token),
                 where};
  }
  return Error{ErrorCode::invalid_argument,
               fmt::format("logit of token {}, expert {} is NaN or infinite, expected a number "
                           "below infinity",
                           token, expert),
               where};
}

}  // namespace fewbit::cuda
