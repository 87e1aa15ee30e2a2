// SPDX-License-Identifier: Apache-2.0
// vLLM's FP8 experts on a CPU: weights in blocks, 16-bit products.
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {{{WeightKind::fp8_block}, {ActivationKind::fp8_group}}};
constexpr FunctionRule functions[] = {{Activation::silu}};
constexpr Divisor shapes[] = {{Divisor::Size::intermediate, 128, {WeightKind::fp8_block}}};
constexpr Rules rules{
    .devices = {DeviceKind::cpu},
    .isa = IsaLevel::amx,
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .biases = {},
    .dtypes = both_16_bit,
    .exchanges = ordered_exchanges,
    .routings = {Routing::softmax, Routing::renormalize},
    .shapes = shapes,
    .arithmetic = "16-bit activations, though FP8 ones are asked for",
};

}  // namespace
}  // namespace foreign

const Backend cpu_fp8_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_cpu_fp8",
    .summary = "vLLM on AMX, FP8 blocks",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
