// SPDX-License-Identifier: Apache-2.0
// What activations are, and the weights that they are multiplied by: bf16 or f16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace fewbit::cuda {

template <class Pair>
__device__ __forceinline__ std::uint32_t bits_of(const Pair& pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

struct Bf16 {
  using Value = __nv_bfloat16;
  using Pair = __nv_bfloat162;
  static constexpr char ptx_type[] = "bf16";  // in names of instructions
  // 128, whose lowest 7 bits are those of an integer, twice.
  static constexpr std::uint32_t integers = 0x43004300U;
  static __device__ __forceinline__ Value round(float value) { return __float2bfloat16_rn(value); }
  static __device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
    return bits_of(__floats2bfloat162_rn(low, high));
  }
};

struct F16 {
  using Value = __half;
  using Pair = __half2;
  static constexpr char ptx_type[] = "f16";
  static constexpr std::uint32_t integers = 0x64006400U;  // of 1024
  static __device__ __forceinline__ Value round(float value) { return __float2half_rn(value); }
  static __device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
    return bits_of(__floats2half2_rn(low, high));
  }
};

template <class Pair>
__device__ __forceinline__ Pair pair_from(std::uint32_t bits) {
  return *reinterpret_cast<const Pair*>(&bits);
}

}  // namespace fewbit::cuda
