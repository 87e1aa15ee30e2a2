// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/deep_gemm_rules.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {{{WeightKind::fp8_block}, {ActivationKind::fp8_group}}};
constexpr FunctionRule functions[] = {{Activation::silu}};

constexpr Rules rules = deep_gemm::rules_for(weights, functions, batched_exchanges);

}  // namespace
}  // namespace foreign

const Backend batched_deep_gemm_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_batched_deep_gemm",
    .summary = "DeepGEMM, FP8 blocks, tokens batched by expert",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
