// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{75}};
// Which forms of activations go with which weights is its package's own affair.
constexpr WeightRule weights[] = {
    {{WeightKind::int4, WeightKind::int8, WeightKind::nvfp4, WeightKind::mxfp4, WeightKind::mxfp8,
      WeightKind::fp8_tensor, WeightKind::fp8_channel, WeightKind::fp8_block},
     Set<ActivationKind>::all()}};

constexpr Rules rules{.capabilities = capabilities,
                      .weights = weights,
                      .loader = Loader::vllm,
                      .dtypes = both_16_bit,
                      .weight_on_input = false};

}  // namespace
}  // namespace foreign

const Backend humming_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "humming",
    .summary = "Humming; its layout is inside its package",
    .layout = foreign::hidden_layout,
    .preparation = foreign::nothing<foreign::not_public>,
});

}  // namespace fewbit
