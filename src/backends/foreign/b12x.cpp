// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/b12x_preparation.hpp"
#include "backends/foreign/nvfp4_rules.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_120};
constexpr WeightRule weights[] = {
    {{WeightKind::nvfp4}, {ActivationKind::nvfp4, ActivationKind::none}}};
constexpr FunctionRule functions[] = {
    {Activation::silu, false}, {Activation::gelu_tanh, false}, {Activation::relu2}};

constexpr Rules rules = [] {
  Rules all = nvfp4::rules_for(capabilities, functions, nvfp4::swizzled_gate_up);
  all.weights = weights;
  all.cuda_version = 130;
  all.experts = ExpertSpread::one_rank;
  return all;
}();

constexpr PackedFp4Form packed{
    .kinds = {WeightKind::nvfp4}, .expected = "NVFP4", .padding = PackedPadding::blocks};

}  // namespace
}  // namespace foreign

const Backend b12x_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_b12x",
    .summary = "b12x NVFP4 of FlashInfer",
    .layout = "marlin_4bit, byte_scale_grid, row_major, swizzle_128x4",
    .only_forced = "by explicit choice only",
    .preparation = foreign::b12x::preparation<foreign::packed>,
});

}  // namespace fewbit
