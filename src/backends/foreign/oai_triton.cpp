// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{90, 109}};
constexpr WeightRule weights[] = {{{WeightKind::mxfp4}, {ActivationKind::none}}};
constexpr FunctionRule fused_functions[] = {{Activation::swigluoai}};
constexpr FunctionRule unfused_functions[] = {
    {Activation::swigluoai}, {Activation::silu}, {Activation::gelu}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 32}, {Divisor::Size::intermediate, 32}};

constexpr Rules rules_with(std::span<const FunctionRule> functions) {
  return {.capabilities = capabilities,
          .weights = weights,
          .functions = functions,
          .non_gated = false,
          .dtypes = both_16_bit,
          .exchanges = ordered_exchanges,
          .shapes = shapes};
}
constexpr Rules rules = rules_with(fused_functions);
constexpr Rules unfused_rules = rules_with(unfused_functions);

}  // namespace
}  // namespace foreign

const Backend oai_triton_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_oai_triton",
    .summary = "Triton kernels of gpt-oss, MXFP4",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

const Backend oai_triton_unfused_backend = foreign::backend<foreign::unfused_rules>({
    .engine = Engine::vllm,
    .name = "vllm_oai_triton_unfused",
    .summary = "the same, the function computed apart",
    .layout = foreign::unknown_layout,
    .only_forced = "moe_backend triton_unfused",
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
