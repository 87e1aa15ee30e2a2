// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/deep_gemm_rules.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100, family_120};
// The kernel's own form is groups of 128; checkpoints that it is asked about want 8 bits as mxfp8.
constexpr WeightRule weights[] = {
    {{WeightKind::mxfp4}, {ActivationKind::fp8_group, ActivationKind::mxfp8}}};
constexpr FunctionRule functions[] = {{Activation::silu}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 32}, {Divisor::Size::intermediate, 32}};

constexpr Rules rules = [] {
  Rules all = deep_gemm::rules_for(weights, functions, deep_gemm::in_order);
  all.capabilities = capabilities;
  all.shapes = shapes;
  all.arithmetic = "e4m3 activations in groups of 128, whatever 8-bit form is asked for";
  return all;
}();

}  // namespace
}  // namespace foreign

const Backend deep_gemm_fp4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_deep_gemm_fp4",
    .summary = "DeepGEMM, MXFP4 with FP8 activations in groups of 128",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
