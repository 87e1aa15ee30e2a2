// SPDX-License-Identifier: Apache-2.0
// Router operations: logits to expert numbers and weights.
#include "fewbit/moe.hpp"
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

Result<Score> score_from(const GoldenCase& c, const std::string& name) {
  if (name == "softmax") return Score::softmax;
  if (name == "sigmoid") return Score::sigmoid;
  if (name == "sqrtsoftplus") return Score::sqrt_softplus;
  return Error{ErrorCode::unsupported, "scoring_func '" + name + "' is unknown", c.name};
}

Result<RouterParams> common_params(const GoldenCase& c) {
  RouterParams params;
  FEWBIT_TRY(const std::int64_t top_k, c.int_param("topk"));
  params.top_k = static_cast<int>(top_k);
  FEWBIT_TRY(params.renormalize, c.bool_param("renormalize"));
  return params;
}

Result<Outputs> routed(const GoldenCase& c, const RouterParams& params) {
  FEWBIT_TRY(const std::int64_t tokens, c.int_param("tokens"));
  FEWBIT_TRY(const std::int64_t experts, c.int_param("experts"));
  FEWBIT_TRY(const std::vector<float> logits, c.values<float>("logits"));
  std::vector<float> bias;
  if (c.has_input("e_score_correction_bias")) {
    FEWBIT_TRY(bias, c.values<float>("e_score_correction_bias"));
  }
  const auto routes = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(params.top_k);
  std::vector<std::int32_t> ids(routes);
  std::vector<float> weights(routes);
  FEWBIT_TRY(route(params, tokens, experts, logits, bias, ids, weights));
  const std::vector<double> weights_f64(weights.begin(), weights.end());
  const Shape shape{tokens, params.top_k};
  Outputs outputs;
  outputs["topk_ids"] = tensor_of(DType::i32, shape, ids);
  outputs["topk_weights"] = tensor_of(DType::f32, shape, weights);
  outputs["topk_weights_f64"] = tensor_of(DType::f64, shape, weights_f64);
  return outputs;
}

}  // namespace

Result<Outputs> router_softmax_topk(const GoldenCase& c) {
  FEWBIT_TRY(const RouterParams params, common_params(c));
  return routed(c, params);
}

Result<Outputs> router_biased_topk(const GoldenCase& c) {
  FEWBIT_TRY(RouterParams params, common_params(c));
  FEWBIT_TRY(const std::string score, c.string_param("scoring_func"));
  FEWBIT_TRY(params.score, score_from(c, score));
  FEWBIT_TRY(const double scaling, c.number_param("routed_scaling_factor"));
  params.scaling = static_cast<float>(scaling);
  return routed(c, params);
}

Result<Outputs> router_grouped_topk(const GoldenCase& c) {
  FEWBIT_TRY(RouterParams params, common_params(c));
  FEWBIT_TRY(const std::string score, c.string_param("scoring_func"));
  FEWBIT_TRY(params.score, score_from(c, score));
  FEWBIT_TRY(const double scaling, c.number_param("routed_scaling_factor"));
  params.scaling = static_cast<float>(scaling);
  FEWBIT_TRY(const std::int64_t groups, c.int_param("num_expert_group"));
  FEWBIT_TRY(const std::int64_t top_groups, c.int_param("topk_group"));
  params.num_groups = static_cast<int>(groups);
  params.top_groups = static_cast<int>(top_groups);
  return routed(c, params);
}

}  // namespace fewbit::golden
