// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_int4.hpp"
#include "backends/foreign/rule_backend.hpp"
#include "backends/foreign/undo_integers.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {
    {{WeightKind::int4, WeightKind::int4_g32}, {ActivationKind::none}}};
constexpr FunctionRule functions[] = {{Activation::silu},
                                      {Activation::gelu},
                                      {Activation::gelu_tanh},
                                      {Activation::swigluoai},
                                      {Activation::relu2}};
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 8},
    {Divisor::Size::intermediate, 8},
    {Divisor::Size::hidden, 1, integers, GroupUse::alone},
    {Divisor::Size::intermediate, 1, integers, GroupUse::alone},
};

// The layout holds neither zero points nor an order of columns.
constexpr Rules rules{
    .devices = {DeviceKind::xpu},
    .weights = weights,
    .zero_points = false,
    .group_order = false,
    .loader = Loader::vllm,
    .functions = functions,
    .dtypes = both_16_bit,
    .exchanges = ordered_exchanges,
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend xpu_int4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "xpu_int4",
    .summary = "vLLM on XPU, 4-bit integers",
    .layout = "xpu_int4, row_major",
    .preparation = {foreign::plan_xpu_int4_experts, foreign::pack_xpu_int4_expert,
                    foreign::check_xpu_int4, foreign::undo_xpu_int4},
});

}  // namespace fewbit
