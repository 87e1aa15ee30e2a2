// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/mxint4_rules.hpp"
#include "backends/foreign/pack_int4.hpp"
#include "backends/foreign/rule_backend.hpp"
#include "backends/foreign/undo_integers.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100, family_120};
constexpr WeightRule weights[] = {
    {{WeightKind::int4, WeightKind::int4_g32}, {ActivationKind::none}}};
constexpr std::int64_t groups[] = {32};
constexpr FunctionRule functions[] = {{Activation::silu}, {Activation::swigluoai}};

constexpr Rules rules = [] {
  Rules all = mxint4::rules_for(Loader::none, capabilities);
  all.weights = weights;
  all.integer_groups = groups;
  all.functions = functions;
  all.router = mxint4::router;
  return all;
}();

}  // namespace
}  // namespace foreign

const Backend api_trtllm_mxint4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::flashinfer,
    .name = "trtllm_mxint4",
    .summary = "TensorRT-LLM int4 in groups of 32, called directly",
    .layout = "trtllm_mxint4, swizzle_128x4",
    .preparation = {foreign::plan_mxint4_experts, foreign::pack_mxint4_expert,
                    foreign::check_mxint4, foreign::undo_mxint4},
});

}  // namespace fewbit
