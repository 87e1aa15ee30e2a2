// SPDX-License-Identifier: Apache-2.0
// Act-order: columns are packed in the order of their groups, and activations are taken in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fewbit/quantized.hpp"

namespace fewbit {

// Column of the matrix at each place, by group and then as they were. Error invalid_argument: a
// group that is not full (its number and both sizes); fewer or more groups than columns fill.
Result<std::vector<std::int32_t>> column_order(const QuantizedTensor& tensor);
// Error corrupt: not each of 0 to size - 1 once; `name` is what the order is called.
Result<void> check_order(std::span<const std::int32_t> order, const std::string& name,
                         const std::string& where);
// Place of each column.
std::vector<std::int32_t> inverse_order(const std::vector<std::int32_t>& order);

// Codes [n, k] of `bits` (4 or 8), row-major, with their columns in that order.
std::vector<std::uint8_t> order_codes(int bits, std::int64_t n, std::span<const std::byte> codes,
                                      const std::vector<std::int32_t>& order);

}  // namespace fewbit
