// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/moe_reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/reference/row_reader.hpp"
#include "core/float_convert.hpp"
#include "moe/activate.hpp"
#include "moe/routing.hpp"

namespace fewbit {
namespace {

Error bad(std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), "moe_reference"};
}

Result<void> check(const MoeWeights& weights, const MoeReferenceInput& input,
                   const MoeReferenceOptions& options) {
  const auto tokens = static_cast<std::size_t>(std::max<std::int64_t>(input.tokens, 0));
  const auto hidden_size = static_cast<std::size_t>(weights.hidden_size);
  if (input.tokens < 0) return bad(fmt::format("{} tokens", input.tokens));
  if (input.hidden.size() != tokens * hidden_size) {
    return bad(fmt::format("hidden holds {} elements, expected {} tokens * {}", input.hidden.size(),
                           tokens, hidden_size));
  }
  if (input.topk_ids.size() != input.topk_weights.size()) {
    return bad(fmt::format("{} ids but {} router weights", input.topk_ids.size(),
                           input.topk_weights.size()));
  }
  if (tokens > 0 && input.topk_ids.size() % tokens != 0) {
    return bad(fmt::format("{} ids for {} tokens", input.topk_ids.size(), tokens));
  }
  const bool gated = activation_gated(options.activation.kind);
  for (std::size_t e = 0; e < weights.experts.size(); ++e) {
    if (weights.experts[e].biased() && options.rounding != MoeRounding::none) {
      return bad(fmt::format("expert {} has a bias, which is defined without rounding only", e));
    }
    if (weights.experts[e].gate.has_value() != gated) {
      return bad(fmt::format("expert {} has {} gate, but {} needs {}", e, gated ? "no" : "a",
                             activation_name(options.activation.kind), gated ? "one" : "none"));
    }
  }
  return {};
}

// out[row] = sum over k of w[row, k] * x[k], without the global scale.
Result<void> multiply(const RowReader& matrix, std::span<const double> x, std::span<double> out) {
  std::vector<float> w(x.size());
  for (std::size_t row = 0; row < out.size(); ++row) {
    FEWBIT_TRY(matrix.read(static_cast<std::int64_t>(row), w));
    double sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k) sum += double{w[k]} * x[k];
    out[row] = sum;
  }
  return {};
}

// Rows of one route inside the trace.
struct RouteRows {
  std::span<double> fc1, activated, fc2;
};

class Forward {
 public:
  explicit Forward(const MoeReferenceOptions& options)
      : options_(options),
        staged_(options.rounding == MoeRounding::staged_bf16),
        weight_on_input_(options.router_weight_side == RouterWeightSide::input) {}

  // One expert on one token.
  Result<void> run(const ExpertWeights& expert, std::span<const double> x, double router_weight,
                   const RouteRows& rows) const {
    const std::size_t width = rows.activated.size();
    const bool gated = expert.gate.has_value();
    const auto gate = rows.fc1.first(gated ? width : 0);
    const auto up = rows.fc1.last(width);
    if (gated) FEWBIT_TRY(project(*expert.gate, x, weight_on_input_, router_weight, gate));
    FEWBIT_TRY(project(expert.up, x, weight_on_input_, router_weight, up));
    if (gated) add_bias(expert.gate_bias, 1.0, gate);
    add_bias(expert.up_bias, 1.0, up);
    for (std::size_t i = 0; i < width; ++i) rows.activated[i] = act(gated ? gate[i] : 0, up[i]);
    FEWBIT_TRY(project(expert.down, rows.activated, !weight_on_input_, router_weight, rows.fc2));
    add_bias(expert.down_bias, weight_on_input_ ? 1.0 : router_weight, rows.fc2);
    return {};
  }

  // Sum over the routes of a token, in order.
  void add(std::span<const double> fc2, std::span<double> out) const {
    for (std::size_t h = 0; h < out.size(); ++h) out[h] = f32(out[h] + fc2[h]);
  }
  double stage(double x) const {
    return staged_ ? bf16_to_f32(f32_to_bf16(static_cast<float>(x))) : x;
  }

 private:
  static void add_bias(const std::vector<float>& bias, double weight, std::span<double> sums) {
    for (std::size_t i = 0; i < bias.size(); ++i) sums[i] += weight * double{bias[i]};
  }
  double f32(double x) const { return staged_ ? double{static_cast<float>(x)} : x; }

  // A product with a matrix, its global scale and, on its side, the router weight.
  Result<void> project(const QuantizedTensor& tensor, std::span<const double> x, bool weighted,
                       double router_weight, std::span<double> out) const {
    const RowReader matrix(tensor);
    FEWBIT_TRY(multiply(matrix, x, out));
    for (double& sum : out) {
      sum = weighted ? stage(stage(sum) * stage(router_weight * matrix.global()))
                     : stage(f32(sum) * matrix.global());
    }
    return {};
  }

  double act(double gate, double up) const {
    const ActivationConstants constants = activation_constants(options_.activation);
    if (staged_ && options_.activation.kind == Activation::silu) {
      const double limit = constants.limit;
      return stage(stage(silu(clamp_gate(gate, limit))) * stage(clamp_up(up, limit)));
    }
    return stage(activate(options_.activation.kind, gate, up, constants));
  }

  const MoeReferenceOptions& options_;
  bool staged_;
  bool weight_on_input_;
};

void raise(float& entry, std::span<const double> values) {
  for (const double x : values) entry = std::max(entry, static_cast<float>(std::abs(x)));
}

std::span<double> row_of(std::vector<double>& rows, std::size_t route, std::size_t width) {
  return std::span(rows).subspan(route * width, width);
}

}  // namespace

Result<MoeReferenceResult> moe_reference(const MoeWeights& weights, const MoeReferenceInput& input,
                                         const MoeReferenceOptions& options) {
  FEWBIT_TRY(check(weights, input, options));
  const auto tokens = static_cast<std::size_t>(input.tokens);
  const std::size_t routes = input.topk_ids.size();
  const auto hidden_size = static_cast<std::size_t>(weights.hidden_size);
  const auto width = static_cast<std::size_t>(weights.intermediate_size);
  const std::size_t fc1_width = activation_gated(options.activation.kind) ? 2 * width : width;
  MoeReferenceResult result;
  result.out.resize(tokens * hidden_size);
  result.trace.fc1.resize(routes * fc1_width);
  result.trace.activated.resize(routes * width);
  result.trace.fc2.resize(routes * hidden_size);
  result.amax.resize(weights.experts.size() * 2);

  const Forward forward(options);
  for (std::size_t route = 0; route < routes; ++route) {
    const std::int32_t id = local_expert(input.topk_ids[route], input.expert_map.data(),
                                         static_cast<std::int64_t>(input.expert_map.size()),
                                         static_cast<std::int64_t>(weights.experts.size()));
    if (id == no_expert) continue;
    const auto expert = static_cast<std::size_t>(id);
    const std::size_t token = route / (routes / tokens);
    const auto hidden = input.hidden.subspan(token * hidden_size, hidden_size);
    const std::vector<double> x(hidden.begin(), hidden.end());
    const RouteRows rows{.fc1 = row_of(result.trace.fc1, route, fc1_width),
                         .activated = row_of(result.trace.activated, route, width),
                         .fc2 = row_of(result.trace.fc2, route, hidden_size)};
    FEWBIT_TRY(forward.run(weights.experts[expert], x, input.topk_weights[route], rows));
    forward.add(rows.fc2, row_of(result.out, token, hidden_size));
    raise(result.amax[expert * 2], x);
    raise(result.amax[expert * 2 + 1], rows.activated);
  }
  for (double& value : result.out) value = forward.stage(value);
  return result;
}

}  // namespace fewbit
