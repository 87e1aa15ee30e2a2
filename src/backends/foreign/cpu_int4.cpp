// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_int4.hpp"
#include "backends/foreign/rule_backend.hpp"
#include "backends/foreign/undo_integers.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {{{WeightKind::int4}, {ActivationKind::none}}};
constexpr FunctionRule functions[] = {{Activation::silu, false}};
// Blocks of 32 rows by a group, at most 128 columns.
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 32},
    {Divisor::Size::intermediate, 16, Set<WeightKind>::all(), GroupUse::ignored, When::gated},
    {Divisor::Size::intermediate, 32, Set<WeightKind>::all(), GroupUse::ignored, When::non_gated},
    {Divisor::Size::hidden, 128, integers, GroupUse::at_most},
    {Divisor::Size::intermediate, 128, integers, GroupUse::at_most},
    {Divisor::Size::hidden, 1, integers, GroupUse::alone},
    {Divisor::Size::intermediate, 1, integers, GroupUse::alone},
};

constexpr Rules rules{
    .devices = {DeviceKind::cpu},
    .isa = IsaLevel::amx,
    .weights = weights,
    .group_order = false,
    .loader = Loader::vllm,
    .functions = functions,
    .non_gated = false,
    .dtypes = both_16_bit,
    .weight_on_input = false,
    .experts = ExpertSpread::one_rank,
    .exchanges = ordered_exchanges,
    .routings = {Routing::softmax, Routing::renormalize},
    .shapes = shapes,
    .arithmetic = "int8 activations inside, though the format is called W4A16",
};

}  // namespace
}  // namespace foreign

const Backend cpu_int4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_cpu_int4",
    .summary = "vLLM on AMX, 4-bit integers",
    .layout = "cpu_int4_blocks, cpu_int4_groups, row_major",
    .preparation = {foreign::plan_cpu_int4_experts, foreign::pack_cpu_int4_expert,
                    foreign::check_cpu_int4, foreign::undo_cpu_int4},
});

}  // namespace fewbit
