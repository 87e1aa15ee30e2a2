// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/moe_f4_stream_launch.cuh"

namespace fewbit::cuda {

int launch_moe_f4(const CellFormat& format, const StreamPlan& plan, const MoeF4Args& args,
                  void* stream) {
  auto* on = static_cast<cudaStream_t>(stream);
  MoeF4Args with = args;
  with.format = format;
  if (args.x_type == ActivationType::f16) return launch_stream_f16(plan, with, on);
  switch (format.kind) {
    case CellKind::nvfp4:
      return launch_stream<F4E4m3>(plan, with, on);
    case CellKind::mxfp4:
      return launch_stream<F4E8m0>(plan, with, on);
    case CellKind::int4:
      return launch_stream<IntCells<4, Bf16>>(plan, with, on);
    case CellKind::int8:
      return launch_stream<IntCells<8, Bf16>>(plan, with, on);
    case CellKind::f8:
      return launch_stream<F8Cells<false, Bf16>>(plan, with, on);
    case CellKind::mxfp8:
      return launch_stream<F8Cells<true, Bf16>>(plan, with, on);
    case CellKind::ternary:
      return launch_stream<IntCells<2, Bf16>>(plan, with, on);
    case CellKind::nf3:
      return launch_stream<IntCells<3, Bf16>>(plan, with, on);
  }
  return cudaErrorInvalidValue;
}

}  // namespace fewbit::cuda
