// SPDX-License-Identifier: Apache-2.0
// ModelOpt's formats beside NVFP4, told apart by their tensors.
#pragma once

#include <string>

#include "scheme/reader.hpp"

namespace fewbit {

// Which of them the tensors of a module are.
enum class ModeloptFormat {
  none,         // none that fewbit knows
  fp8,          // f8 codes, also MXFP8: the reader of FP8 takes them
  mxfp4,        // u8 [n, k/2], e8m0 scales a group of 32
  int4_awq,     // u8 [n/2, k], two rows a byte
  int8,         // i8 [n, k]
  mxfp6,        // u8 [n, 3k/4], e8m0 scales a group of 32
  scales_only,  // no weight beside them
};
// algorithm: what the config says of this module, upper case; it decides where scales fit nothing.
ModeloptFormat modelopt_format(const Draft& draft, const std::string& algorithm);

// Claims mxfp4, int4_awq, int8 and what is only named, or says what does not fit.
void claim_modelopt_format(const Inventory& inventory, Draft& draft, ModeloptFormat format,
                           const std::string& algorithm);

// Whether a module's weights are what a quant_algo says, and their scales where it says. An
// algorithm that is not known fits nothing and everything: `known` tells.
bool modelopt_algorithm_known(const std::string& algorithm);
bool modelopt_algorithm_fits(const std::string& algorithm, const Module& module);

}  // namespace fewbit
