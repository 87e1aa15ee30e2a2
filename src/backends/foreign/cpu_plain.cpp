// SPDX-License-Identifier: Apache-2.0
// vLLM's 16-bit experts on a CPU: by AMX, by the vector units of Arm and Power, or portable. What
// one of them refuses, the portable one takes.
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {{{WeightKind::plain}, {ActivationKind::none}}};
constexpr FunctionRule functions[] = {
    {Activation::silu}, {Activation::gelu}, {Activation::gelu_tanh}, {Activation::swigluoai}};
// Otherwise intermediate_size is padded.
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 32},
    {Divisor::Size::intermediate, 32, Set<WeightKind>::all(), GroupUse::ignored, When::swigluoai}};
constexpr Rules rules{
    .devices = {DeviceKind::cpu},
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .exchanges = ordered_exchanges,
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend cpu_plain_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_cpu_plain",
    .summary = "vLLM on a CPU, 16-bit",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
