// SPDX-License-Identifier: Apache-2.0
// E2M1 codes, two a byte, with a scale a group: every producer but GGUF stores them so and differs
// in names, in the order of dimensions and in what the second factor means.
#pragma once

#include "scheme/reader.hpp"

namespace fewbit {

// The parts of such a module under the names of all producers.
struct Fp4Parts {
  std::string_view codes;   // "weight", "weight_packed", "packed", "blocks"
  std::string_view scale;   // "weight_scale", "scale", "scales"
  std::string_view global;  // "weight_scale_2", or a divisor: "weight_global_scale"
  bool divisor = false;
};
Fp4Parts fp4_parts(const Module& module);

// Claims the draft: sizes, order of dimensions, and MXFP4, NVFP4 or NVFP4 with e5m3 scales as the
// tensors say; refused with both sides where they don't fit together.
void claim_fp4(const Inventory& inventory, Draft& draft, Producer producer,
               std::optional<DType> activation);

}  // namespace fewbit
