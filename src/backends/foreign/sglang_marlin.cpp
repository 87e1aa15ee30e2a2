// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/marlin_preparation.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{80}};
constexpr WeightRule weights[] = {
    {{WeightKind::int4, WeightKind::int4_g32, WeightKind::int8}, Set<ActivationKind>::all()},
    {{WeightKind::mxfp4}, {ActivationKind::none}},
};
constexpr std::int64_t groups[] = {0, 32, 64, 128};
constexpr FunctionRule functions[] = {{Activation::silu},
                                      {Activation::relu2, true, {WeightKind::mxfp4}}};
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 64},
    {Divisor::Size::hidden, 1, integers, GroupUse::alone},
    {Divisor::Size::intermediate, 1, integers, GroupUse::alone, When::no_group_order},
    {Divisor::Size::intermediate, 64, Set<WeightKind>::all(), GroupUse::ignored, When::hidden_128},
    {Divisor::Size::intermediate, 128, Set<WeightKind>::all(), GroupUse::ignored,
     When::not_hidden_128},
};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .integer_groups = groups,
    .loader = Loader::sglang,
    .functions = functions,
    .dtypes = both_16_bit,
    .exchanges = {TokenExchange::none, TokenExchange::allgather},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend sglang_marlin_backend = foreign::backend<foreign::rules>({
    .engine = Engine::sglang,
    .name = "sglang_marlin",
    .summary = "Marlin of SGLang",
    .layout = "marlin_4bit, marlin_8bit, marlin_scales, marlin_zeros, byte_scale_grid, row_major",
    .preparation = foreign::marlin::preparation<foreign::marlin::no_padding>,
});

}  // namespace fewbit
