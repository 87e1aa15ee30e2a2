// SPDX-License-Identifier: Apache-2.0
#include "select/planned_layouts.hpp"

#include <utility>

#include "core/checked.hpp"

namespace fewbit {
namespace {

std::int64_t groups(std::int64_t size, std::int64_t each) {
  return each <= 0 ? 1 : ceil_div(size, each);
}

// A matrix whose parts are there, with their shapes, and whose values nobody reads.
Result<QuantizedTensor> outline(const Scheme& scheme, std::int64_t n, std::int64_t k) {
  QuantizedTensor out;
  out.n = n;
  out.k = k;
  out.scheme = scheme;
  const auto part = [](DType dtype, Shape shape) -> Result<Tensor> {
    FEWBIT_TRY(OwnedTensor owned, allocate_tensor(dtype, std::move(shape)));
    return std::move(owned.tensor);
  };
  FEWBIT_TRY(out.codes, part(scheme.weight, {n, k}));
  if (!scheme.scale || scheme.ggml_type) return out;
  const Granularity& of = scheme.scale->granularity;
  const Shape grid = {groups(n, of.rows), groups(k, of.cols)};
  FEWBIT_TRY(out.scales, part(scheme.scale->dtype, grid));
  if (scheme.zero_points) {
    FEWBIT_TRY(out.zero_points, part(DType::u8, grid));
  }
  if (scheme.act_order == ActOrder::group) {
    FEWBIT_TRY(out.g_idx, part(DType::i32, {k}));
  }
  return out;
}

Result<ExpertWeights> outline(const MoeProblem& share) {
  const std::int64_t wide = share.hidden_size;
  const std::int64_t inner = share.intermediate_size;
  ExpertWeights expert;
  FEWBIT_TRY(expert.up, outline(share.gate_up, inner, wide));
  FEWBIT_TRY(expert.down, outline(share.down, wide, inner));
  if (activation_gated(share.activation.kind)) expert.gate = expert.up;
  if (!share.biases) return expert;
  if (expert.gate) expert.gate_bias.resize(static_cast<std::size_t>(inner));
  expert.up_bias.resize(static_cast<std::size_t>(inner));
  expert.down_bias.resize(static_cast<std::size_t>(wide));
  return expert;
}

}  // namespace

std::string planned_layouts(const Backend& backend, const MoeProblem& share) {
  const auto expert = outline(share);
  if (!expert || backend.plan_moe == nullptr) return backend.layout;
  const auto plan = backend.plan_moe(share, *expert);
  return plan && !plan->buffers.empty() ? layouts_text(*plan) : backend.layout;
}

}  // namespace fewbit
