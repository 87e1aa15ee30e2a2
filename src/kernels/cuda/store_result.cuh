// SPDX-License-Identifier: Apache-2.0
// A layer's results in the type that they are asked for, rounded once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/moe_f4.hpp"

namespace fewbit::cuda {

__device__ __forceinline__ void store_result(void* out, OutType type, long long i, float value) {
  if (type == OutType::bf16) {
    static_cast<__nv_bfloat16*>(out)[i] = __float2bfloat16_rn(value);
  } else if (type == OutType::f16) {
    static_cast<__half*>(out)[i] = __float2half_rn(value);
  } else {
    static_cast<float*>(out)[i] = value;
  }
}

// Four neighbouring ones.
__device__ __forceinline__ void store_results(void* out, OutType type, long long quad,
                                              const float4& value) {
  if (type == OutType::f32) {
    static_cast<float4*>(out)[quad] = value;
    return;
  }
  uint2 bits;
  if (type == OutType::bf16) {
    const __nv_bfloat162 low = __floats2bfloat162_rn(value.x, value.y);
    const __nv_bfloat162 high = __floats2bfloat162_rn(value.z, value.w);
    bits = {*reinterpret_cast<const std::uint32_t*>(&low),
            *reinterpret_cast<const std::uint32_t*>(&high)};
  } else {
    const __half2 low = __floats2half2_rn(value.x, value.y);
    const __half2 high = __floats2half2_rn(value.z, value.w);
    bits = {*reinterpret_cast<const std::uint32_t*>(&low),
            *reinterpret_cast<const std::uint32_t*>(&high)};
  }
  static_cast<uint2*>(out)[quad] = bits;
}

}  // namespace fewbit::cuda
