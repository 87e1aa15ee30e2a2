// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>

#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{75}};
// Which forms of activations go with which weights is its package's own affair.
constexpr WeightRule weights[] = {
    {{WeightKind::int4, WeightKind::int8, WeightKind::nvfp4, WeightKind::mxfp4, WeightKind::mxfp8,
      WeightKind::fp8_tensor, WeightKind::fp8_channel, WeightKind::fp8_block},
     Set<ActivationKind>::all()}};

constexpr Rules rules{.capabilities = capabilities,
                      .weights = weights,
                      .loader = Loader::vllm,
                      .dtypes = both_16_bit,
                      .weight_on_input = false};

const char* yes_no(bool value) { return value ? "true" : "false"; }

// What the engine tells the package of a matrix, as far as that is public.
std::string weight_schema(const Scheme& scheme) {
  const WeightKind kind = weight_kind(scheme);
  if (!integers.contains(kind)) return weight_kind_name(kind);
  const std::int64_t group = scheme.scale->granularity.cols;
  const std::string sizes =
      fmt::format("bits {}, group_size {}", dtype_bits(scheme.weight), group == 0 ? -1 : group);
  if (scheme.producer == Producer::awq) {
    return fmt::format("awq: {}, zero_point {}", sizes, yes_no(scheme.zero_points));
  }
  return fmt::format(
      "{}: {}, desc_act {}, sym {}",
      scheme.producer == Producer::compressed_tensors ? "compressed-tensors" : "gptq", sizes,
      yes_no(scheme.act_order == ActOrder::group), yes_no(!scheme.zero_points));
}

Result<void> refuse(const MoeProblem& problem) {
  std::string schema = weight_schema(problem.gate_up);
  if (problem.down != problem.gate_up) schema += "; down " + weight_schema(problem.down);
  return Error{ErrorCode::unsupported, fmt::format("{} (it is told {})", not_public, schema),
               problem.where};
}

constexpr Preparation schema_only{
    .plan = [](const MoeProblem& problem, const ExpertWeights&) -> Result<MoePlan> {
      return refuse(problem).error();
    },
    .pack = [](const MoeProblem& problem, const MoePlan&, const ExpertWeights&,
               ExpertSpans) { return refuse(problem); },
    .check = refuse,
};

}  // namespace
}  // namespace foreign

const Backend humming_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "humming",
    .summary = "Humming; its layout is inside its package",
    .layout = foreign::hidden_layout,
    .preparation = foreign::schema_only,
});

}  // namespace fewbit
