// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/deep_gemm_rules.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr WeightRule weights[] = {
    {{WeightKind::fp8_block}, {ActivationKind::fp8_group}},
    {{WeightKind::mxfp8}, {ActivationKind::mxfp8}, family_100},
};
constexpr FunctionRule functions[] = {{Activation::silu}, {Activation::swigluoai}};

constexpr Rules rules = deep_gemm::rules_for(weights, functions, deep_gemm::in_order);

}  // namespace
}  // namespace foreign

const Backend deep_gemm_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_deep_gemm",
    .summary = "DeepGEMM, FP8 blocks",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
