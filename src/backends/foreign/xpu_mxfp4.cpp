// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {
    {{WeightKind::mxfp4}, {ActivationKind::none, ActivationKind::mxfp4}}};
constexpr FunctionRule functions[] = {{Activation::silu},
                                      {Activation::gelu},
                                      {Activation::gelu_tanh},
                                      {Activation::swigluoai},
                                      {Activation::relu2}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 32}, {Divisor::Size::intermediate, 32}};

constexpr Rules rules{
    .devices = {DeviceKind::xpu},
    .weights = weights,
    .functions = functions,
    .dtypes = both_16_bit,
    .exchanges = ordered_exchanges,
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend xpu_mxfp4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "xpu_mxfp4",
    .summary = "vLLM on XPU, MXFP4",
    .preparation = foreign::nothing<foreign::reads_rows>,
});

}  // namespace fewbit
