// SPDX-License-Identifier: Apache-2.0
#include "backends/rounding_bound.hpp"

#include <cmath>

#include "moe/routing.hpp"

namespace fewbit::test {
namespace {

struct Rounding {
  double relative = 0;  // half a step
  double absolute = 0;  // half the smallest step, for the subnormal range of f16
};

Rounding rounding_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {.relative = std::ldexp(1.0, -8)};
    case DType::f16:
      return {.relative = std::ldexp(1.0, -11), .absolute = std::ldexp(1.0, -25)};
    default:
      return {.relative = std::ldexp(1.0, -24)};
  }
}

// Adds to out[h]: weight * sum over i of (rounding of activated[i]) * |down[h, i]|.
Result<void> add_route(const QuantizedTensor& down, std::span<const double> activated,
                       double weight, Rounding rounding, std::span<double> out) {
  std::vector<float> row(activated.size());
  for (std::size_t h = 0; h < out.size(); ++h) {
    FEWBIT_TRY(dequantize_rows(down, static_cast<std::int64_t>(h), row));
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double moved = rounding.relative * std::abs(activated[i]) + rounding.absolute;
      sum += moved * std::abs(double{row[i]});
    }
    out[h] += weight * sum;
  }
  return {};
}

}  // namespace

Result<std::vector<double>> rounding_bound(const MoeProblem& problem, const MoeWeights& weights,
                                           const MoeReferenceInput& input,
                                           const MoeReferenceResult& reference) {
  const auto hidden_size = static_cast<std::size_t>(problem.hidden_size);
  const auto width = static_cast<std::size_t>(problem.intermediate_size);
  const auto top_k = static_cast<std::size_t>(problem.top_k);
  const Rounding rounding = rounding_of(problem.activation_dtype);
  std::vector<double> bound(reference.out.size());
  for (std::size_t route = 0; route < input.topk_ids.size(); ++route) {
    const std::int32_t expert =
        local_expert(input.topk_ids[route], input.expert_map.data(),
                     static_cast<std::int64_t>(input.expert_map.size()), problem.num_experts);
    if (expert == no_expert) continue;
    const double weight = problem.router_weight_side == RouterWeightSide::output
                              ? std::abs(double{input.topk_weights[route]})
                              : 1.0;
    FEWBIT_TRY(add_route(weights.experts[static_cast<std::size_t>(expert)].down,
                         std::span(reference.trace.activated).subspan(route * width, width), weight,
                         rounding,
                         std::span(bound).subspan(route / top_k * hidden_size, hidden_size)));
  }
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const double largest = std::abs(reference.out[i]) + bound[i];
    // The last term: double sums in another order, and dequantized rows rounded to f32 here.
    bound[i] += rounding.relative * largest + rounding.absolute + std::ldexp(largest, -40);
  }
  return bound;
}

}  // namespace fewbit::test
