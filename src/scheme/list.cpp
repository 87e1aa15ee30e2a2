// SPDX-License-Identifier: Apache-2.0
// The ordered list of readers. A new producer is one file and one line here.
#include "scheme/reader.hpp"

namespace fewbit {

std::span<const Reader> readers() {
  static constexpr Reader list[] = {
      {Producer::gguf, claim_gguf, nullptr},
      {Producer::unquantized, claim_masks, nullptr},
      {Producer::auto_round, claim_affine_words, nullptr},
      {Producer::mlx, claim_mlx, check_mlx},
      {Producer::unknown, claim_named_tensors, nullptr},
      {Producer::modelopt, claim_modelopt, check_modelopt},
      {Producer::nf3, claim_nf3, check_nf3},
      {Producer::quark, claim_quark, check_quark},
      {Producer::mxfp4, claim_mxfp4, nullptr},
      {Producer::compressed_tensors, claim_compressed_tensors, check_compressed_tensors},
      {Producer::gptq, claim_integer_words, check_integer_words},
      {Producer::ternary, claim_ternary, nullptr},
      {Producer::bitsandbytes, claim_bitsandbytes, check_bitsandbytes},
      {Producer::fp8, claim_w4afp8, nullptr},
      {Producer::fp8, claim_fp8, check_fp8},
      {Producer::unknown, claim_other_producers, nullptr},
      {Producer::unquantized, claim_unquantized, nullptr},
  };
  return list;
}

}  // namespace fewbit
