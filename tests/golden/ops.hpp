// SPDX-License-Identifier: Apache-2.0
// Every operation of a golden set by its name in the manifest; ops_<topic>.cpp implement them.
#pragma once

#include "golden/case.hpp"

namespace fewbit::golden {

// ops_dequant.cpp
Result<Outputs> dequant_nvfp4(const GoldenCase& golden_case);
// ops_fp8.cpp
Result<Outputs> dequant_fp8_block(const GoldenCase& c);
Result<Outputs> dequant_fp8_scaled(const GoldenCase& c);
Result<Outputs> per_tensor_dequantize(const GoldenCase& c);
Result<Outputs> convert_to_channelwise(const GoldenCase& c);
Result<Outputs> requantize_with_max_scale(const GoldenCase& c);
// ops_gguf.cpp
Result<Outputs> dequant_gguf(const GoldenCase& c);
Result<Outputs> dequant_q2_0(const GoldenCase& c);
Result<Outputs> quantize_gguf(const GoldenCase& c);

// ops_integer.cpp
Result<Outputs> dequant_gptq(const GoldenCase& c);
Result<Outputs> dequant_awq(const GoldenCase& c);
Result<Outputs> awq_to_plain_pack(const GoldenCase& c);
Result<Outputs> pack_rows(const GoldenCase& c);
Result<Outputs> pack_cols(const GoldenCase& c);
Result<Outputs> unpack_cols(const GoldenCase& c);
Result<Outputs> sort_weights(const GoldenCase& c);

// ops_quantize.cpp
Result<Outputs> quantize_weights(const GoldenCase& c);
Result<Outputs> gptq_quantize_weights(const GoldenCase& c);

// ops_numeric.cpp
Result<Outputs> decode_e4m3fn(const GoldenCase& golden_case);
Result<Outputs> decode_e5m2(const GoldenCase& golden_case);
Result<Outputs> decode_e8m0(const GoldenCase& golden_case);
Result<Outputs> decode_fp16(const GoldenCase& golden_case);
Result<Outputs> decode_bf16(const GoldenCase& golden_case);
Result<Outputs> decode_e2m1(const GoldenCase& golden_case);
Result<Outputs> decode_e2m1_bytes(const GoldenCase& golden_case);
Result<Outputs> encode_e4m3fn(const GoldenCase& golden_case);
Result<Outputs> encode_e4m3fn_sat(const GoldenCase& golden_case);
Result<Outputs> encode_e5m2(const GoldenCase& golden_case);
Result<Outputs> encode_e5m2_sat(const GoldenCase& golden_case);
Result<Outputs> encode_e8m0(const GoldenCase& golden_case);
Result<Outputs> encode_e8m0_info(const GoldenCase& golden_case);
Result<Outputs> encode_bf16(const GoldenCase& golden_case);
Result<Outputs> encode_fp16(const GoldenCase& golden_case);
Result<Outputs> encode_chain_f16_e4m3(const GoldenCase& golden_case);
Result<Outputs> encode_e2m1(const GoldenCase& golden_case);
Result<Outputs> nf3_codebook(const GoldenCase& golden_case);
// ops_mxfp4.cpp
Result<Outputs> dequant_mxfp4(const GoldenCase& c);
Result<Outputs> dequant_mxfp4_gptoss(const GoldenCase& c);
// ops_layout.cpp
Result<Outputs> b12x_nvfp4_scale_factor_table(const GoldenCase& c);
Result<Outputs> b12x_permute_packed_scales(const GoldenCase& c);
Result<Outputs> b12x_process_nvfp4_packed_scales(const GoldenCase& c);
Result<Outputs> b12x_repack_4bit(const GoldenCase& c);
Result<Outputs> block_scale_interleave(const GoldenCase& c);
Result<Outputs> block_scale_swizzle_128x4(const GoldenCase& c);
Result<Outputs> reorder_w13_to_gate_up(const GoldenCase& c);
Result<Outputs> scale_perms(const GoldenCase& c);
Result<Outputs> swap_w13_to_w31(const GoldenCase& c);
Result<Outputs> swizzle_blockscale(const GoldenCase& c);

// ops_w4a16.cpp
Result<Outputs> prepare_w4a16_compressed_tensors_weights(const GoldenCase& c);
Result<Outputs> prepare_w4a16_fp4_e8m0_k32_weights(const GoldenCase& c);
Result<Outputs> prepare_w4a16_modelopt_nvfp4_weights(const GoldenCase& c);
Result<Outputs> prepare_w4a16_packed_weights(const GoldenCase& c);
// ops_w4a16_native.cpp
Result<Outputs> prepare_w4a16_modelopt_native_weights(const GoldenCase& c);
Result<Outputs> prepare_w4a16_e8m0_native_weights(const GoldenCase& c);
Result<Outputs> prepare_nf3_moe_weights(const GoldenCase& c);
Result<Outputs> b12x_nf3_pack_codes(const GoldenCase& c);
Result<Outputs> b12x_process_nf3_packed_scales(const GoldenCase& c);
Result<Outputs> route_plan_table(const GoldenCase& c);
// ops_prepare_errors.cpp
Result<Outputs> prepare_errors_table(const GoldenCase& c);
// ops_foreign.cpp
Result<Outputs> trtllm_fp4_prepare(const GoldenCase& c);
Result<Outputs> trtllm_mxint4_prepare(const GoldenCase& c);
Result<Outputs> trtllm_row_indices(const GoldenCase& c);
Result<Outputs> process_weights_xpu(const GoldenCase& c);
Result<Outputs> reorder_w1w3_to_w3w1(const GoldenCase& c);
Result<Outputs> reorder_w1w3_errors_table(const GoldenCase& c);
// ops_marlin.cpp
Result<Outputs> gptq_marlin_repack(const GoldenCase& c);
Result<Outputs> awq_marlin_repack(const GoldenCase& c);
Result<Outputs> marlin_permute_scales(const GoldenCase& c);
Result<Outputs> marlin_permute_bias(const GoldenCase& c);
Result<Outputs> marlin_zero_points(const GoldenCase& c);
Result<Outputs> awq_to_marlin_zero_points(const GoldenCase& c);
Result<Outputs> packed_to_marlin_zero_points(const GoldenCase& c);
Result<Outputs> marlin_act_int8_process_scales(const GoldenCase& c);
Result<Outputs> marlin_moe_padded_intermediate(const GoldenCase& c);
Result<Outputs> marlin_int4_fp8_preprocess(const GoldenCase& c);
// ops_marlin_layer.cpp
Result<Outputs> process_weights_marlin(const GoldenCase& c);
Result<Outputs> process_awq_weights_marlin(const GoldenCase& c);
Result<Outputs> process_weights_marlin_error(const GoldenCase& c);
// ops_moe.cpp
Result<Outputs> moe_forward(const GoldenCase& c);
Result<Outputs> moe_reference_nvfp4(const GoldenCase& c);
Result<Outputs> moe_reference_e8m0(const GoldenCase& c);
// ops_router.cpp
Result<Outputs> router_biased_topk(const GoldenCase& c);
Result<Outputs> router_grouped_topk(const GoldenCase& c);
Result<Outputs> router_softmax_topk(const GoldenCase& c);
// ops_sglang.cpp
Result<Outputs> get_dynamic_override(const GoldenCase& c);
Result<Outputs> is_layer_skipped(const GoldenCase& c);
Result<Outputs> module_path_match(const GoldenCase& c);

}  // namespace fewbit::golden
