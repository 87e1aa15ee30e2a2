// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {{{WeightKind::mxfp4}, {ActivationKind::none}}};
constexpr FunctionRule functions[] = {{Activation::silu}, {Activation::swigluoai}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 32}, {Divisor::Size::intermediate, 32}};

constexpr Rules rules{
    .devices = {DeviceKind::cpu},
    .isa = IsaLevel::amx,
    .weights = weights,
    .functions = functions,
    .non_gated = false,
    .dtypes = both_16_bit,
    .exchanges = ordered_exchanges,
    .routings = {Routing::softmax, Routing::renormalize},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend cpu_mxfp4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_cpu_mxfp4",
    .summary = "vLLM on AMX, MXFP4",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
