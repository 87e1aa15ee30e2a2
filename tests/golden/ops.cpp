// SPDX-License-Identifier: Apache-2.0
// The operations that the library can run today; a golden set's other operations are reported as
// not supported yet.
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

constexpr Op ops[] = {
    {"", nullptr},
    {"decode_e4m3fn", decode_e4m3fn},
    {"decode_e5m2", decode_e5m2},
    {"decode_e8m0", decode_e8m0},
    {"decode_fp16", decode_fp16},
    {"decode_bf16", decode_bf16},
    {"decode_e2m1", decode_e2m1},
    {"decode_e2m1_bytes", decode_e2m1_bytes},
    {"encode_e4m3fn", encode_e4m3fn},
    {"encode_e4m3fn_sat", encode_e4m3fn_sat},
    {"encode_e5m2", encode_e5m2},
    {"encode_e5m2_sat", encode_e5m2_sat},
    {"encode_e8m0", encode_e8m0},
    {"encode_e8m0_info", encode_e8m0_info},
    {"encode_bf16", encode_bf16},
    {"encode_fp16", encode_fp16},
    {"encode_chain_f16_e4m3", encode_chain_f16_e4m3},
    {"encode_e2m1", encode_e2m1},
    {"nf3_codebook", nf3_codebook},
    {"dequant_nvfp4", dequant_nvfp4},
    {"dequant_fp8_block", dequant_fp8_block},
    {"dequant_fp8_scaled", dequant_fp8_scaled},
    {"per_tensor_dequantize", per_tensor_dequantize},
    {"convert_to_channelwise", convert_to_channelwise},
    {"requantize_with_max_scale", requantize_with_max_scale},
    {"dequant_mxfp4", dequant_mxfp4},
    {"dequant_mxfp4_gptoss", dequant_mxfp4_gptoss},
    {"dequant_gguf", dequant_gguf},
    {"dequant_q2_0", dequant_q2_0},
    {"quantize_gguf", quantize_gguf},
    {"dequant_gptq", dequant_gptq},
    {"dequant_awq", dequant_awq},
    {"awq_to_plain_pack", awq_to_plain_pack},
    {"pack_rows", pack_rows},
    {"pack_cols", pack_cols},
    {"unpack_cols", unpack_cols},
    {"sort_weights", sort_weights},
    {"quantize_weights", quantize_weights},
    {"gptq_quantize_weights", gptq_quantize_weights},
    {"b12x_nvfp4_scale_factor_table", b12x_nvfp4_scale_factor_table},
    {"b12x_permute_packed_scales", b12x_permute_packed_scales},
    {"b12x_process_nvfp4_packed_scales", b12x_process_nvfp4_packed_scales},
    {"b12x_repack_4bit", b12x_repack_4bit},
    {"block_scale_interleave", block_scale_interleave},
    {"block_scale_swizzle_128x4", block_scale_swizzle_128x4},
    {"reorder_w13_to_gate_up", reorder_w13_to_gate_up},
    {"scale_perms", scale_perms},
    {"swap_w13_to_w31", swap_w13_to_w31},
    {"swizzle_blockscale", swizzle_blockscale},
    {"prepare_w4a16_compressed_tensors_weights", prepare_w4a16_compressed_tensors_weights},
    {"prepare_w4a16_fp4_e8m0_k32_weights", prepare_w4a16_fp4_e8m0_k32_weights},
    {"prepare_w4a16_modelopt_nvfp4_weights", prepare_w4a16_modelopt_nvfp4_weights},
    {"prepare_w4a16_packed_weights", prepare_w4a16_packed_weights},
    {"prepare_w4a16_modelopt_native_weights", prepare_w4a16_modelopt_native_weights},
    {"prepare_w4a16_e8m0_native_weights", prepare_w4a16_e8m0_native_weights},
    {"prepare_nf3_moe_weights", prepare_nf3_moe_weights},
    {"b12x_nf3_pack_codes", b12x_nf3_pack_codes},
    {"b12x_process_nf3_packed_scales", b12x_process_nf3_packed_scales},
    {"route_plan_table", route_plan_table},
    {"prepare_errors_table", prepare_errors_table},
    {"moe_forward", moe_forward},
    {"moe_reference_nvfp4", moe_reference_nvfp4},
    {"router_biased_topk", router_biased_topk},
    {"router_grouped_topk", router_grouped_topk},
    {"router_softmax_topk", router_softmax_topk},
    {"get_dynamic_override", get_dynamic_override},
    {"is_layer_skipped", is_layer_skipped},
    {"module_path_match", module_path_match},
};

}  // namespace

std::span<const Op> all_ops() { return std::span(ops).subspan(1); }

}  // namespace fewbit::golden
