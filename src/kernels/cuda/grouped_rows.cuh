// SPDX-License-Identifier: Apache-2.0
// Activations as the grouped products read them. An item's rows are an image of shared memory, so
// that one bulk copy brings a stage: for every 64 k all rows of 128 bytes, their 16-byte chunks
// swizzled. Inside 32 k the order is that of the weights' registers (layout/cuda_f4_cells.hpp):
// chunk 2 s + h holds k 4 s + 2 h and the next of each run of 8.
#pragma once

#include <cstdint>

namespace fewbit::cuda {

// Where a chunk of a row of an item lies, from the beginning of the item's image.
__device__ __forceinline__ std::uint32_t chunk_place(int rows, int row, int step, int chunk) {
  return static_cast<std::uint32_t>((step * rows + row) * 128 + ((chunk ^ (row & 7)) * 16));
}

}  // namespace fewbit::cuda
