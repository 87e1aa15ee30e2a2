// SPDX-License-Identifier: Apache-2.0
// Backends of other engines: fewbit tells what they would choose and prepares some of their
// layouts, but never runs them.
#pragma once

#include "select/backend.hpp"

namespace fewbit {

extern const Backend api_b12x_backend;
extern const Backend api_cutedsl_backend;
extern const Backend api_cutlass_backend;
extern const Backend api_trtllm_fp4_backend;
extern const Backend api_trtllm_mxint4_backend;
extern const Backend b12x_backend;
extern const Backend batched_deep_gemm_backend;
extern const Backend batched_marlin_backend;
extern const Backend batched_triton_backend;
extern const Backend cpu_fp8_backend;
extern const Backend cpu_int4_backend;
extern const Backend cpu_mxfp4_backend;
extern const Backend cpu_plain_backend;
extern const Backend cutedsl_backend;
extern const Backend cutedsl_batched_backend;
extern const Backend cutlass_fp4_backend;
extern const Backend cutlass_fp8_backend;
extern const Backend deep_gemm_backend;
extern const Backend deep_gemm_fp4_backend;
extern const Backend flashinfer_cutlass_backend;
extern const Backend humming_backend;
extern const Backend int4_emulation_backend;
extern const Backend marlin_backend;
extern const Backend mx_emulation_backend;
extern const Backend nvfp4_emulation_backend;
extern const Backend oai_triton_backend;
extern const Backend oai_triton_unfused_backend;
extern const Backend sglang_marlin_backend;
extern const Backend sglang_trtllm_mxint4_backend;
extern const Backend triton_backend;
extern const Backend triton_wna16_backend;
extern const Backend trtllm_bf16_backend;
extern const Backend trtllm_fp8_backend;
extern const Backend trtllm_mxfp4_backend;
extern const Backend trtllm_mxint4_backend;
extern const Backend trtllm_nvfp4_backend;
extern const Backend xpu_fp8_backend;
extern const Backend xpu_int4_backend;
extern const Backend xpu_mxfp4_backend;
extern const Backend xpu_plain_backend;

namespace foreign {

// The kernel reads tensors much as the checkpoint has them: there is nothing to prepare.
inline constexpr const char* as_stored = "as stored";
// It is in none of the sources, or inside a package.
inline constexpr const char* unknown_layout = "not described";
inline constexpr const char* hidden_layout = "not public";

}  // namespace foreign
}  // namespace fewbit
