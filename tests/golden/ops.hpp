// SPDX-License-Identifier: Apache-2.0
// Every operation of a golden set by its name in the manifest; ops_<topic>.cpp implement them.
#pragma once

#include "golden/case.hpp"

namespace fewbit::golden {

// ops_dequant.cpp
Result<Outputs> dequant_nvfp4(const GoldenCase& golden_case);
// ops_gguf.cpp
Result<Outputs> dequant_gguf(const GoldenCase& c);
Result<Outputs> dequant_q2_0(const GoldenCase& c);
Result<Outputs> quantize_gguf(const GoldenCase& c);

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

}  // namespace fewbit::golden
