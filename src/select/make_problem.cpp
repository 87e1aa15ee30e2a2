// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "canonical/one_global.hpp"
#include "canonical/one_order.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {
namespace {

Error differ(std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), "experts"};
}

Result<void> same_scheme(const std::string& a, const Scheme& of_a, const std::string& b,
                         const Scheme& of_b) {
  if (of_a == of_b) return {};
  return Error{ErrorCode::unsupported,
               fmt::format("{} is {}, but {} is {}", a, scheme_text(of_a), b, scheme_text(of_b)),
               "experts"};
}

// One scheme for all gates and ups, one for all downs: others are no fault, but nothing runs them.
Result<void> check_schemes(const std::vector<ExpertWeights>& experts) {
  const ExpertWeights& first = experts.front();
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const ExpertWeights& expert = experts[e];
    const auto name = [&](const char* matrix) { return fmt::format("expert {} {}", e, matrix); };
    if (expert.gate) {
      FEWBIT_TRY(same_scheme(name("gate"), expert.gate->scheme, name("up"), expert.up.scheme));
    }
    FEWBIT_TRY(same_scheme("expert 0 up", first.up.scheme, name("up"), expert.up.scheme));
    FEWBIT_TRY(same_scheme("expert 0 down", first.down.scheme, name("down"), expert.down.scheme));
  }
  return {};
}

// 0 in the config: not stated.
Result<void> check_size(const char* name, std::int64_t weights, std::int64_t config) {
  if (config == 0 || weights == config) return {};
  return differ(fmt::format("{} is {} in the weights, {} in the config", name, weights, config));
}

// As engines name it; those that score with a sigmoid have a correction bias, but for llama4.
Routing routing_of(const ModelConfig& config) {
  const RouterParams& router = config.router;
  switch (router.score) {
    case Score::softmax:
      return router.renormalize ? Routing::renormalize : Routing::softmax;
    case Score::sqrt_softplus:
      return router.renormalize ? Routing::sqrt_softplus : Routing::other;
    case Score::sigmoid:
      if (router.top_k == 1) return Routing::llama4;
      if (!router.renormalize) return Routing::sigmoid;
      return config.model_type.starts_with("minimax") ? Routing::minimax2 : Routing::deepseek_v3;
  }
  return Routing::other;
}

}  // namespace

Result<MoeProblem> make_problem(const MoeWeights& weights, const ModelConfig& config,
                                DType activation_dtype, std::int64_t max_tokens) {
  if (weights.experts.empty()) return differ("none");
  FEWBIT_TRY(check_schemes(weights.experts));
  FEWBIT_TRY(check_size("hidden_size", weights.hidden_size, config.hidden_size));
  FEWBIT_TRY(
      check_size("intermediate_size", weights.intermediate_size, config.moe_intermediate_size));
  const auto experts = static_cast<std::int64_t>(weights.experts.size());
  if (config.num_experts > 0 && experts > config.num_experts) {
    return differ(fmt::format("{} in the weights, {} in the config", experts, config.num_experts));
  }
  return MoeProblem{
      .hidden_size = weights.hidden_size,
      .intermediate_size = weights.intermediate_size,
      .num_experts = experts,
      .top_k = config.router.top_k,
      .gate_up = weights.experts.front().up.scheme,
      .down = weights.experts.front().down.scheme,
      .activation = config.activation,
      .activation_dtype = activation_dtype,
      .router_weight_side = RouterWeightSide::output,
      .expert_map = experts < config.num_experts,
      .biases = std::any_of(
          weights.experts.begin(), weights.experts.end(),
          [](const ExpertWeights& expert) { return expert.biased(); }),
      .max_tokens = max_tokens,
      .where = "experts",
      .routing = routing_of(config),
      .router_groups = config.router.num_groups,
      .top_groups = config.router.top_groups,
      .routed_experts = config.num_experts,
      .parallel = {},
      .two_scale_experts =
          std::count_if(weights.experts.begin(), weights.experts.end(), keeps_two_globals),
      .two_order_experts =
          std::count_if(weights.experts.begin(), weights.experts.end(), keeps_two_orders),
  };
}

}  // namespace fewbit
