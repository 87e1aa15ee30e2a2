// SPDX-License-Identifier: Apache-2.0
// Launches of the grouped products, for one kind of activations a source file.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/moe_f4_grouped.cuh"

namespace fewbit::cuda {

template <class Format, class Tile, bool first>
cudaError_t launch_grouped_products(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
                                    cudaStream_t stream) {
  constexpr int shared = grouped_stages * Tile::stage_bytes + 1024;
  const cudaError_t error = cudaFuncSetAttribute(
      grouped_products<Format, Tile, first>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error != cudaSuccess) return error;
  grouped_products<Format, Tile, first>
      <<<static_cast<unsigned>(plan.blocks), Tile::threads, shared, stream>>>(plan, args, scratch);
  return cudaGetLastError();
}

template <class Format, int item_rows>
cudaError_t launch_grouped_tiles(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
                                 cudaStream_t stream) {
  using Tile = GroupedTile<Format, item_rows>;
  if (plan.units1 > 0) {
    const cudaError_t error =
        launch_grouped_products<Format, Tile, true>(plan, args, scratch, stream);
    if (error != cudaSuccess) return error;
  }
  return launch_grouped_products<Format, Tile, false>(plan, args, scratch, stream);
}

template <class Format>
cudaError_t launch_both_products(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
                                 cudaStream_t stream) {
  switch (plan.item_rows) {
    case 32:
      return launch_grouped_tiles<Format, 32>(plan, args, scratch, stream);
    case 64:
      return launch_grouped_tiles<Format, 64>(plan, args, scratch, stream);
    case 128:
      // Sums and their parts side by side are more than the registers.
      if constexpr (!Format::scaled_sums) {
        return launch_grouped_tiles<Format, 128>(plan, args, scratch, stream);
      }
      return cudaErrorInvalidValue;
    default:
      return cudaErrorInvalidValue;
  }
}

// Of kinds that CellFormat::takes_f16(), in moe_f4_grouped_f16.cu.
cudaError_t launch_both_products_f16(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
                                     cudaStream_t stream);

}  // namespace fewbit::cuda
