// SPDX-License-Identifier: Apache-2.0
#include "select/problem.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "canonical/code_row.hpp"
#include "canonical/grid.hpp"
#include "core/checked.hpp"

namespace fewbit {
namespace {

Error bad(const std::string& where, std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), where};
}

Result<void> check_size(const std::string& where, const char* name, std::int64_t value) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (value >= 1 && value <= most) return {};
  return bad(where, fmt::format("{} is {}, expected 1 to {}", name, value, most));
}

Result<void> check_activation(const std::string& where, const ActivationParams& params) {
  const char* name = activation_name(params.kind);
  if (!std::isfinite(params.alpha) || !std::isfinite(params.beta)) {
    return bad(where, fmt::format("{} with alpha {} and beta {}, expected finite numbers", name,
                                  params.alpha, params.beta));
  }
  if (params.kind != Activation::swigluoai && (params.alpha != 1.0F || params.beta != 0.0F)) {
    return bad(where, fmt::format("{} has no alpha and beta, but they are {} and {}", name,
                                  params.alpha, params.beta));
  }
  if (!params.limit) return {};
  if (!activation_gated(params.kind)) {
    return bad(where, fmt::format("{} has no limit, but it is {}", name, *params.limit));
  }
  if (!std::isfinite(*params.limit) || *params.limit <= 0) {
    return bad(where, fmt::format("limit of {} is {}, expected a finite number above 0", name,
                                  *params.limit));
  }
  return {};
}

// The bytes that a tensor of that type and shape has.
Result<void> check_tensor(const std::string& where, const TensorView& view, DType dtype,
                          const Shape& shape) {
  FEWBIT_TRY(const std::uint64_t bytes, tensor_bytes(dtype, shape));
  if (view.bytes.size() == bytes) return {};
  return bad(where, fmt::format("{} bytes, expected {} ({} {})", view.bytes.size(), bytes,
                                dtype_name(dtype), shape_text(shape)));
}

// Rows of whole bytes.
Result<void> check_codes(const std::string& where, const QuantizedTensor& tensor) {
  const DType dtype = tensor.scheme.weight;
  const auto bytes =
      checked_mul(static_cast<std::uint64_t>(tensor.n), code_row_bytes(dtype, tensor.k));
  const std::uint64_t has = tensor.codes.view.bytes.size();
  if (bytes == has) return {};
  return bad(where, fmt::format("{} bytes, expected {} ({} {})", has, bytes.value_or(0),
                                dtype_name(dtype), shape_text(Shape{tensor.n, tensor.k})));
}

struct Expected {
  std::int64_t n;
  std::int64_t k;
  const Scheme& scheme;
};

Result<void> check_matrix(const std::string& where, const QuantizedTensor& tensor,
                          const Expected& expected) {
  if (tensor.n != expected.n || tensor.k != expected.k) {
    return bad(where, fmt::format("matrix [{}, {}], expected [{}, {}]", tensor.n, tensor.k,
                                  expected.n, expected.k));
  }
  if (tensor.scheme != expected.scheme) {
    return bad(where, fmt::format("scheme {}, expected {}", scheme_text(tensor.scheme),
                                  scheme_text(expected.scheme)));
  }
  if (tensor.scheme.ggml_type) {
    const auto blocks = check_quantized(tensor);
    return blocks ? blocks : bad(where, blocks.error().what);
  }
  FEWBIT_TRY(check_codes(where + " codes", tensor));
  if (!tensor.scheme.scale) return {};
  FEWBIT_TRY(check_tensor(where + " scales", tensor.scales.view, tensor.scheme.scale->dtype,
                          {grid_rows(tensor), grid_columns(tensor)}));
  if (tensor.scheme.act_order != ActOrder::group) return {};
  const auto checked = check_quantized(tensor);
  return checked ? checked : bad(where, checked.error().what);
}

}  // namespace

Result<void> check_problem(const MoeProblem& problem) {
  FEWBIT_TRY(check_size(problem.where, "hidden_size", problem.hidden_size));
  FEWBIT_TRY(check_size(problem.where, "intermediate_size", problem.intermediate_size));
  FEWBIT_TRY(check_size(problem.where, "num_experts", problem.num_experts));
  FEWBIT_TRY(check_size(problem.where, "top_k", problem.top_k));
  FEWBIT_TRY(check_size(problem.where, "max_tokens", problem.max_tokens));
  return check_activation(problem.where, problem.activation);
}

Result<void> check_problem(const LinearProblem& problem) {
  FEWBIT_TRY(check_size(problem.where, "n", problem.n));
  FEWBIT_TRY(check_size(problem.where, "k", problem.k));
  return check_size(problem.where, "max_tokens", problem.max_tokens);
}

Result<void> check_expert(const MoeProblem& problem, const std::string& where,
                          const ExpertWeights& expert) {
  const bool gated = activation_gated(problem.activation.kind);
  if (expert.biased() && !problem.biases) {
    return bad(where, "biases, but the problem says that no expert has one");
  }
  if (expert.gate.has_value() != gated) {
    return bad(where, fmt::format("{} gate, but {} {}", expert.gate ? "a" : "no",
                                  activation_name(problem.activation.kind),
                                  gated ? "needs one" : "has none"));
  }
  const Expected in{
      .n = problem.intermediate_size, .k = problem.hidden_size, .scheme = problem.gate_up};
  if (expert.gate) FEWBIT_TRY(check_matrix(where + " gate", *expert.gate, in));
  FEWBIT_TRY(check_matrix(where + " up", expert.up, in));
  return check_matrix(
      where + " down", expert.down,
      {.n = problem.hidden_size, .k = problem.intermediate_size, .scheme = problem.down});
}

Result<void> check_weights(const MoeProblem& problem, const MoeWeights& weights) {
  const auto experts = static_cast<std::int64_t>(weights.experts.size());
  if (experts != problem.num_experts) {
    return bad(problem.where, fmt::format("weights of {} experts, expected num_experts {}", experts,
                                          problem.num_experts));
  }
  for (std::size_t e = 0; e < weights.experts.size(); ++e) {
    const std::string where = fmt::format("{} expert {}", problem.where, e);
    FEWBIT_TRY(check_expert(problem, where, weights.experts[e]));
  }
  return {};
}

Result<void> check_weights(const LinearProblem& problem, const QuantizedTensor& weight) {
  return check_matrix(problem.where, weight,
                      {.n = problem.n, .k = problem.k, .scheme = problem.weight});
}

}  // namespace fewbit
