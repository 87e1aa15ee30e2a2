// SPDX-License-Identifier: Apache-2.0
// Experts stored as one 3-D tensor: which way round they are.
#pragma once

#include <string>

#include "scheme/reader.hpp"

namespace fewbit {

// Why 16/32-bit fused experts can't be read as [E, rows, columns] with gate rows first; empty when
// they can. The order follows from hidden_size, and from the family where both sides are equal.
std::string plain_fused_obstacle(const Inventory& inventory, const Module& module,
                                 const Shape& shape);

}  // namespace fewbit
