// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/moe_f4_grouped_launch.cuh"
#include "kernels/cuda/row_kernels.cuh"

namespace fewbit::cuda {
namespace {

cudaError_t launch_products(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
                            cudaStream_t stream) {
  if (args.x_type == ActivationType::f16) {
    return launch_both_products_f16(plan, args, scratch, stream);
  }
  switch (args.format.kind) {
    case CellKind::nvfp4:
      return launch_both_products<F4E4m3>(plan, args, scratch, stream);
    case CellKind::mxfp4:
      return launch_both_products<F4E8m0>(plan, args, scratch, stream);
    case CellKind::int4:
      return launch_both_products<IntCells<4, Bf16>>(plan, args, scratch, stream);
    case CellKind::int8:
      return launch_both_products<IntCells<8, Bf16>>(plan, args, scratch, stream);
    case CellKind::f8:
      return launch_both_products<F8Cells<false, Bf16>>(plan, args, scratch, stream);
    case CellKind::mxfp8:
      return launch_both_products<F8Cells<true, Bf16>>(plan, args, scratch, stream);
    case CellKind::ternary:
      return launch_both_products<IntCells<2, Bf16>>(plan, args, scratch, stream);
    case CellKind::nf3:
      return launch_both_products<IntCells<3, Bf16>>(plan, args, scratch, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

int launch_moe_f4_grouped(const CellFormat& format, const GroupedPlan& plan, const MoeF4Args& args,
                          void* scratch, void* stream) {
  auto* on = static_cast<cudaStream_t>(stream);
  MoeF4Args with = args;
  with.format = format;
  if (!with.rows_placed) place_experts<<<1, sort_threads, 0, on>>>(plan, with, scratch);
  const auto many = static_cast<unsigned>(plan.blocks * 8);
  gather_rows<<<many, 256, 0, on>>>(plan, with, scratch);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  error = launch_products(plan, with, scratch, on);
  if (error != cudaSuccess) return error;
  sum_rows<<<many, 256, 0, on>>>(plan, with, scratch);
  return cudaGetLastError();
}

}  // namespace fewbit::cuda
