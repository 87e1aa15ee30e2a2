// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/nvfp4_rules.hpp"
#include "backends/foreign/pack_trtllm_fp4.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr FunctionRule functions[] = {{Activation::silu},
                                      {Activation::gelu},
                                      {Activation::gelu_tanh},
                                      {Activation::relu2},
                                      {Activation::swigluoai}};

// The modular form takes what the monolithic one refuses: any routing and token exchange. Sizes are
// padded.
constexpr Rules rules = nvfp4::rules_for(capabilities, functions, nvfp4::whole_groups);

constexpr TrtllmFp4Form form{.kinds = {WeightKind::nvfp4},
                             .expected = "NVFP4",
                             .hidden = 256,
                             .intermediate = 64,
                             .ungated_intermediate = 128};

}  // namespace
}  // namespace foreign

const Backend trtllm_nvfp4_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_trtllm_nvfp4",
    .summary = "TensorRT-LLM NVFP4 of FlashInfer, W4A4",
    .layout = "trtllm_rows, trtllm_rows_128x4, row_major",
    .preparation = foreign::trtllm_fp4_preparation<foreign::form>,
});

}  // namespace fewbit
