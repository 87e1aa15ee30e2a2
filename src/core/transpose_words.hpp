// SPDX-License-Identifier: Apache-2.0
// 32-bit words [rows, columns] to [columns, rows].
#pragma once

#include <cstddef>
#include <span>

namespace fewbit {

// Both hold rows * columns words, of any alignment, and do not overlap.
void transpose_words(std::span<const std::byte> from, std::size_t rows, std::size_t columns,
                     std::span<std::byte> to);

}  // namespace fewbit
