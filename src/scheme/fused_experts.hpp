// SPDX-License-Identifier: Apache-2.0
// Experts stored as one 3-D tensor: which way round they are.
#pragma once

#include <string>
#include <string_view>

#include "scheme/reader.hpp"

namespace fewbit {

// The order of values [experts, a, b], from hidden_size; where a and b are equal, from another
// matrix of the same experts, else from the family.
struct FusedOrder {
  bool transposed = false;   // a is in, b is out
  bool alternating = false;  // gate and up in turn (gpt-oss), not one half after the other
  std::string obstacle;      // why the order is not known; empty when it is
};
FusedOrder fused_order(const Inventory& inventory, const Module& module, const Shape& shape);

// Whether 16-bit releases of this model_type hold [experts, in, out].
bool stores_inputs_first(std::string_view model_type);

// Why codes of fused experts can't be read as [experts, rows, columns] with gate rows first; empty
// when they can.
std::string plain_fused_obstacle(const Inventory& inventory, const Module& module,
                                 const Shape& shape);

}  // namespace fewbit
