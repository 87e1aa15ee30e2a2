// SPDX-License-Identifier: Apache-2.0
// What the config says of FP8 weights: quant_method "fp8", "fbgemm_fp8", "mxfp8" or "w4afp8", and
// the same keys of other producers.
#pragma once

#include <optional>
#include <string>

#include "scheme/declared.hpp"

namespace fewbit {

struct Fp8Config {
  std::string where;
  std::string method;
  std::optional<Granularity> block;  // weight_block_size
  std::string bad_block;             // "weight_block_size 7": the key and what is no pair of sizes
  std::string format;                // fmt: "e4m3", "e5m2"
  std::string scale_format;          // scale_fmt: "ue8m0"
  std::string activation;            // activation_scheme: "dynamic", "static"
  std::string expert_dtype;          // "fp4", "fp8"; beside the block or in it
  // weight_scale_semantics: what else than a factor the scales are meant to be.
  std::string scale_semantics;
};

// Of the first declaration that speaks of FP8; empty when none does.
std::optional<Fp8Config> read_fp8_config(const Declared& declared);

}  // namespace fewbit
