// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100, family_110, family_120};
constexpr WeightRule weights[] = {{{WeightKind::nvfp4}, {ActivationKind::nvfp4}}};
constexpr Divisor shapes[] = {
    {Divisor::Size::hidden, 16},
    {Divisor::Size::intermediate, 64, Set<WeightKind>::all(), GroupUse::ignored, When::gated},
    {Divisor::Size::intermediate, 16, Set<WeightKind>::all(), GroupUse::ignored, When::non_gated},
};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .biases = {},
    .dtypes = both_16_bit,
    .experts = ExpertSpread::one_rank,
    .exchanges = ordered_exchanges,
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend cutlass_fp4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_cutlass_fp4",
    .summary = "CUTLASS NVFP4 of vLLM, W4A4",
    .layout = "swizzle_128x4",
});

}  // namespace fewbit
