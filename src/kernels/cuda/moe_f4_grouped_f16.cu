// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/moe_f4_grouped_launch.cuh"

namespace fewbit::cuda {

cudaError_t launch_both_products_f16(const GroupedPlan& plan, const MoeF4Args& args, void* scratch,
                                     cudaStream_t stream) {
  switch (args.format.kind) {
    case CellKind::ternary:
      return launch_both_products<IntCells<2, F16>>(plan, args, scratch, stream);
    case CellKind::int4:
      return launch_both_products<IntCells<4, F16>>(plan, args, scratch, stream);
    case CellKind::int8:
      return launch_both_products<IntCells<8, F16>>(plan, args, scratch, stream);
    case CellKind::f8:
      return launch_both_products<F8Cells<false, F16>>(plan, args, scratch, stream);
    case CellKind::mxfp8:
      return launch_both_products<F8Cells<true, F16>>(plan, args, scratch, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace fewbit::cuda
