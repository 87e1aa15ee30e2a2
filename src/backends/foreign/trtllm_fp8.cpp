// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr WeightRule weights[] = {
    {{WeightKind::fp8_block}, {ActivationKind::fp8_group}},
    {{WeightKind::mxfp8}, {ActivationKind::mxfp8}},
    {{WeightKind::fp8_tensor}, {ActivationKind::fp8_tensor}},
};
constexpr FunctionRule functions[] = {
    {Activation::silu}, {Activation::swigluoai}, {Activation::relu2}};
constexpr Divisor shapes[] = {{Divisor::Size::intermediate, 128, {WeightKind::fp8_block}}};

// One scale a tensor: only the kernel that routes too.
constexpr Rules routing_rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .biases = {},
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .exchanges = {TokenExchange::none, TokenExchange::allgather},
    .routings = {Routing::deepseek_v3, Routing::llama4, Routing::renormalize,
                 Routing::sigmoid_renormalize, Routing::sigmoid, Routing::minimax2},
};
constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .biases = {},
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .exchanges = {TokenExchange::none, TokenExchange::allgather,
                  TokenExchange::flashinfer_one_sided, TokenExchange::flashinfer_two_sided},
    .shapes = shapes,
    .other_weights = {WeightKind::fp8_tensor},
    .other = &routing_rules,
};

}  // namespace
}  // namespace foreign

const Backend trtllm_fp8_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_trtllm_fp8",
    .summary = "TensorRT-LLM FP8 of FlashInfer",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
