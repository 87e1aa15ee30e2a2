// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/nvfp4_rules.hpp"
#include "backends/foreign/pack_swizzled.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100, family_110, family_120};

constexpr Rules rules = [] {
  Rules all = nvfp4::rules_for(capabilities, {}, nvfp4::swizzled_gate_up);
  all.dtypes = both_16_bit;
  all.experts = ExpertSpread::one_rank;
  return all;
}();

constexpr SwizzledForm form{
    .kinds = {WeightKind::nvfp4}, .expected = "NVFP4", .first = FirstPart::gate};

}  // namespace
}  // namespace foreign

const Backend cutlass_fp4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_cutlass_fp4",
    .summary = "CUTLASS NVFP4 of vLLM, W4A4",
    .layout = "row_major, swizzle_128x4",
    .preparation = foreign::swizzled_preparation<foreign::form>,
});

}  // namespace fewbit
