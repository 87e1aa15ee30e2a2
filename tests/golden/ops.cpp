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
    {"dequant_gguf", dequant_gguf},
    {"dequant_q2_0", dequant_q2_0},
    {"quantize_gguf", quantize_gguf},
};

}  // namespace

std::span<const Op> all_ops() { return std::span(ops).subspan(1); }

}  // namespace fewbit::golden
