// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/nvfp4_rules.hpp"
#include "backends/foreign/pack_swizzled.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr FunctionRule functions[] = {{Activation::silu, false}};

constexpr Rules rules = [] {
  Rules all = nvfp4::rules_for(capabilities, functions, nvfp4::swizzled_gate_up);
  all.non_gated = false;
  all.experts = ExpertSpread::any;
  all.exchanges = batched_exchanges;
  return all;
}();

constexpr SwizzledForm form{
    .kinds = {WeightKind::nvfp4}, .expected = "NVFP4", .first = FirstPart::gate};

}  // namespace
}  // namespace foreign

const Backend cutedsl_batched_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_cutedsl_batched",
    .summary = "CuTe DSL NVFP4 of FlashInfer, tokens batched by expert",
    .layout = "row_major, swizzle_128x4",
    .preparation = foreign::swizzled_preparation<foreign::form>,
});

}  // namespace fewbit
