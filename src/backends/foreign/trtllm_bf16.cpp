// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr WeightRule weights[] = {{{WeightKind::plain}, {ActivationKind::none}}};
constexpr FunctionRule functions[] = {{Activation::silu}, {Activation::relu2}};
constexpr Divisor shapes[] = {{Divisor::Size::intermediate, 128}};

constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .biases = {},
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .exchanges = {TokenExchange::none, TokenExchange::allgather,
                  TokenExchange::flashinfer_one_sided, TokenExchange::flashinfer_two_sided},
    .routings = {Routing::deepseek_v3, Routing::llama4, Routing::renormalize,
                 Routing::sigmoid_renormalize, Routing::sigmoid},
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend trtllm_bf16_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_trtllm_bf16",
    .summary = "TensorRT-LLM bf16 of FlashInfer",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
