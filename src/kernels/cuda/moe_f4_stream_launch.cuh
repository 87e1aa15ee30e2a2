// SPDX-License-Identifier: Apache-2.0
// Launches of the streaming kernel, for one kind of activations a source file.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/moe_f4_stream.cuh"

namespace fewbit::cuda {

template <class Format, int max_tiles, bool plain>
cudaError_t launch_stream_tiles(const StreamPlan& plan, const MoeF4Args& args,
                                cudaStream_t stream) {
  cudaError_t error =
      cudaFuncSetAttribute(moe_f4_stream<Format, max_tiles, plain>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cooperative = {};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(plan.blocks));
  config.blockDim = dim3(static_cast<unsigned>(stream_warps * 32));
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, moe_f4_stream<Format, max_tiles, plain>, plan, args);
}

template <class Format>
cudaError_t launch_stream(const StreamPlan& plan, const MoeF4Args& args, cudaStream_t stream) {
  const bool plain = is_plain(args.rule) && args.bias13 == nullptr && args.bias2 == nullptr;
  if (!plain) {
    return plan.token_tiles == 1 ? launch_stream_tiles<Format, 1, false>(plan, args, stream)
                                 : cudaErrorInvalidValue;
  }
  switch (plan.token_tiles) {
    case 1:
      return launch_stream_tiles<Format, 1, true>(plan, args, stream);
    case 2:
      return launch_stream_tiles<Format, 2, true>(plan, args, stream);
    case 4:
      if constexpr (!Format::scaled_sums)
        return launch_stream_tiles<Format, 4, true>(plan, args, stream);
      return cudaErrorInvalidValue;
    default:
      return cudaErrorInvalidValue;
  }
}

// Of kinds whose scales are multiplied into sums, in moe_f4_stream_f16.cu.
cudaError_t launch_stream_f16(const StreamPlan& plan, const MoeF4Args& args, cudaStream_t stream);

}  // namespace fewbit::cuda
