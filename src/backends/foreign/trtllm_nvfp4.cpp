// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_fp4.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr WeightRule weights[] = {{{WeightKind::nvfp4}, {ActivationKind::nvfp4}}};
constexpr FunctionRule functions[] = {{Activation::silu},
                                      {Activation::gelu},
                                      {Activation::gelu_tanh},
                                      {Activation::relu2},
                                      {Activation::swigluoai}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 16}, {Divisor::Size::intermediate, 16}};

// The modular form takes what the monolithic one refuses: any routing and token exchange. Sizes are
// padded.
constexpr Rules rules{
    .capabilities = capabilities,
    .weights = weights,
    .functions = functions,
    .biases = {},
    .dtypes = bf16_only,
    .experts = ExpertSpread::contiguous,
    .exchanges = ordered_exchanges,
    .shapes = shapes,
};

}  // namespace
}  // namespace foreign

const Backend trtllm_nvfp4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_trtllm_nvfp4",
    .summary = "TensorRT-LLM NVFP4 of FlashInfer, W4A4",
    .layout = "trtllm_fp4",
    .preparation = {foreign::plan_trtllm_nvfp4_experts, foreign::pack_trtllm_nvfp4_expert,
                    foreign::check_nvfp4},
});

}  // namespace fewbit
