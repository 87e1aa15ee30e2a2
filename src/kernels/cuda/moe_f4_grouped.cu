// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/moe_f4_grouped.cuh"

namespace fewbit::cuda {
namespace {

__global__ void __launch_bounds__(sort_threads)
    place_experts(const __grid_constant__ GroupedPlan plan, const __grid_constant__ MoeF4Args args,
                  void* scratch) {
  divide_rows<sort_warps, false>(plan, args, scratch);
}

template <class Format, class Tile, bool first>
cudaError_t launch_products(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
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
cudaError_t launch_tiles(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
                         cudaStream_t stream) {
  using Tile = GroupedTile<Format, item_rows>;
  if (plan.units1 > 0) {
    const cudaError_t error = launch_products<Format, Tile, true>(plan, args, scratch, stream);
    if (error != cudaSuccess) return error;
  }
  return launch_products<Format, Tile, false>(plan, args, scratch, stream);
}

template <class Format>
cudaError_t launch_both_products(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
                                 cudaStream_t stream) {
  switch (plan.item_rows) {
    case 32:
      return launch_tiles<Format, 32>(plan, args, scratch, stream);
    case 64:
      return launch_tiles<Format, 64>(plan, args, scratch, stream);
    case 128:
      // Sums and their parts side by side are more than the registers.
      if constexpr (!Format::scaled_sums) {
        return launch_tiles<Format, 128>(plan, args, scratch, stream);
      }
      return cudaErrorInvalidValue;
    default:
      return cudaErrorInvalidValue;
  }
}

template <class Format>
cudaError_t launch(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
                   cudaStream_t stream) {
  if (!args.rows_placed) place_experts<<<1, sort_threads, 0, stream>>>(plan, args, scratch);
  const auto many = static_cast<unsigned>(plan.blocks * 8);
  gather_rows<<<many, 256, 0, stream>>>(plan, args, scratch);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  error = launch_both_products<Format>(plan, args, scratch, stream);
  if (error != cudaSuccess) return error;
  sum_rows<<<many, 256, 0, stream>>>(plan, args, scratch);
  return cudaGetLastError();
}

}  // namespace

int launch_moe_f4_grouped(const CellFormat& format, const GroupedPlan& plan, const MoeF4Args& args,
                          void* scratch, void* stream) {
  auto* on = static_cast<cudaStream_t>(stream);
  MoeF4Args with = args;
  with.format = format;
  switch (format.kind) {
    case CellKind::nvfp4:
      return launch<F4E4m3>(plan, with, scratch, on);
    case CellKind::mxfp4:
      return launch<F4E8m0>(plan, with, scratch, on);
    case CellKind::int4:
      return launch<IntCells<4>>(plan, with, scratch, on);
    case CellKind::int8:
      return launch<IntCells<8>>(plan, with, scratch, on);
    case CellKind::f8:
      return launch<F8Cells<false>>(plan, with, scratch, on);
    case CellKind::mxfp8:
      return launch<F8Cells<true>>(plan, with, scratch, on);
  }
  return cudaErrorInvalidValue;
}

}  // namespace fewbit::cuda
