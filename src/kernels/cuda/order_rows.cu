// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "kernels/cuda/block_routing.cuh"
#include "kernels/cuda/order_rows.hpp"

namespace fewbit::cuda {
namespace {

constexpr int threads = 256;

__device__ __forceinline__ std::uint32_t pair_of(const std::uint16_t* row, int low, int high) {
  return static_cast<std::uint32_t>(__ldg(row + high)) << 16 | __ldg(row + low);
}

// A block a route; a thread stores eight neighbours at once.
__global__ void __launch_bounds__(threads)
    order_rows(const __grid_constant__ OrderRowsArgs rows, const __grid_constant__ MoeF4Args args) {
  const int routes = rows.tokens * rows.top_k;
  for (int route = static_cast<int>(blockIdx.x); route < routes;
       route += static_cast<int>(gridDim.x)) {
    const int expert = expert_of(args, route, routes, rows.experts);
    if (expert < 0) continue;
    const long long width = rows.width;
    const auto* from = static_cast<const std::uint16_t*>(args.x) + route / rows.top_k * width;
    const auto* order = reinterpret_cast<const int4*>(rows.order + expert * width);
    auto* to = reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(rows.to) + route * width);
    for (int i = static_cast<int>(threadIdx.x); i < rows.width / 8; i += threads) {
      const int4 a = __ldg(order + 2 * i);
      const int4 b = __ldg(order + 2 * i + 1);
      to[i] = {pair_of(from, a.x, a.y), pair_of(from, a.z, a.w), pair_of(from, b.x, b.y),
               pair_of(from, b.z, b.w)};
    }
  }
}

}  // namespace

int launch_order_rows(const OrderRowsArgs& rows, const MoeF4Args& args, void* stream) {
  const int routes = rows.tokens * rows.top_k;
  if (routes == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(routes < 65536 ? routes : 65536);
  order_rows<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(rows, args);
  return cudaGetLastError();
}

}  // namespace fewbit::cuda
