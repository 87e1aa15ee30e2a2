// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/moe_f4_stream_launch.cuh"

namespace fewbit::cuda {

cudaError_t launch_stream_f16(const StreamPlan& plan, const MoeF4Args& args, cudaStream_t stream) {
  switch (args.format.kind) {
    case CellKind::ternary:
      return launch_stream<IntCells<2, F16>>(plan, args, stream);
    case CellKind::int4:
      return launch_stream<IntCells<4, F16>>(plan, args, stream);
    case CellKind::int8:
      return launch_stream<IntCells<8, F16>>(plan, args, stream);
    case CellKind::f8:
      return launch_stream<F8Cells<false, F16>>(plan, args, stream);
    case CellKind::mxfp8:
      return launch_stream<F8Cells<true, F16>>(plan, args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace fewbit::cuda
