// SPDX-License-Identifier: Apache-2.0
// vLLM's experts on an XPU with weights of 16 bits and of FP8.
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule plain_weights[] = {{{WeightKind::plain}, {ActivationKind::none}}};
constexpr WeightRule fp8_weights[] = {
    {{WeightKind::fp8_tensor}, {ActivationKind::none, ActivationKind::fp8_tensor}},
    {{WeightKind::mxfp8}, {ActivationKind::none, ActivationKind::mxfp8}}};
constexpr FunctionRule functions[] = {{Activation::silu},
                                      {Activation::gelu},
                                      {Activation::gelu_tanh},
                                      {Activation::swigluoai},
                                      {Activation::relu2}};

constexpr Rules rules_with(std::span<const WeightRule> weights) {
  return {.devices = {DeviceKind::xpu},
          .weights = weights,
          .functions = functions,
          .dtypes = both_16_bit,
          .exchanges = ordered_exchanges};
}
constexpr Rules plain_rules = rules_with(plain_weights);
constexpr Rules fp8_rules = rules_with(fp8_weights);

}  // namespace
}  // namespace foreign

const Backend xpu_plain_backend = foreign::backend<foreign::plain_rules>({
    .engine = Engine::vllm,
    .name = "xpu_plain",
    .summary = "vLLM on XPU, 16-bit",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

const Backend xpu_fp8_backend = foreign::backend<foreign::fp8_rules>({
    .engine = Engine::vllm,
    .name = "xpu_fp8",
    .summary = "vLLM on XPU, FP8 and MXFP8",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
