// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/grouped_routes.cuh"
#include "kernels/cuda/router.hpp"
#include "kernels/cuda/router_choice.cuh"

namespace fewbit::cuda {
namespace {

// Eight neighbours, 16-byte aligned.
__device__ __forceinline__ void load_eight(const __nv_bfloat16* from, float (&to)[8]) {
  const uint4 v = __ldg(reinterpret_cast<const uint4*>(from));
  const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
}
__device__ __forceinline__ void load_eight(const __half* from, float (&to)[8]) {
  const uint4 v = __ldg(reinterpret_cast<const uint4*>(from));
  const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}
__device__ __forceinline__ void load_eight(const float* from, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 v = __ldg(reinterpret_cast<const float4*>(from) + i);
    to[4 * i] = v.x;
    to[4 * i + 1] = v.y;
    to[4 * i + 2] = v.z;
    to[4 * i + 3] = v.w;
  }
}

constexpr int logit_warps = 4;

// A warp has an expert and some tokens; a lane sums 8 of every 256 k.
template <class X, class W, int tokens>
__global__ void __launch_bounds__(logit_warps * 32)
    router_logits(const __grid_constant__ RouterProjection p) {
  const int lane = threadIdx.x % 32;
  const int expert = blockIdx.x * logit_warps + threadIdx.x / 32;
  const int first = blockIdx.y * tokens;
  if (expert >= p.experts) return;
  const W* w = static_cast<const W*>(p.w) + static_cast<long long>(expert) * p.hidden;
  const X* x[tokens];
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    x[t] = static_cast<const X*>(p.x) +
           static_cast<long long>(min(first + t, p.tokens - 1)) * p.hidden;
  }
  float sum[tokens] = {};
  // With several tokens as many loads are on their way without more steps of k.
  constexpr int steps = tokens == 1 ? 4 : 1;
#pragma unroll steps
  for (int k = lane * 8; k < p.hidden; k += 256) {
    float of_w[8];
    load_eight(w + k, of_w);
#pragma unroll
    for (int t = 0; t < tokens; ++t) {
      float of_x[8];
      load_eight(x[t] + k, of_x);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[t] = fmaf(of_x[i], of_w[i], sum[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum[t] += __shfl_xor_sync(all_lanes, sum[t], d);
    if (lane == 0 && first + t < p.tokens) {
      p.logits[static_cast<long long>(first + t) * p.experts + expert] = sum[t];
    }
  }
}

template <class X, class W>
cudaError_t launch_logits(const RouterProjection& p, cudaStream_t stream) {
  constexpr int many = 8;
  const auto blocks = static_cast<unsigned>((p.experts + logit_warps - 1) / logit_warps);
  if (p.tokens == 1) {
    router_logits<X, W, 1><<<blocks, logit_warps * 32, 0, stream>>>(p);
    return cudaGetLastError();
  }
  // Dimension y of a grid has 65535 blocks at most.
  constexpr int part = 65535 * many;
  for (int done = 0; done < p.tokens; done += part) {
    RouterProjection now = p;
    now.tokens = p.tokens - done < part ? p.tokens - done : part;
    now.x = static_cast<const X*>(p.x) + static_cast<long long>(done) * p.hidden;
    now.logits = p.logits + static_cast<long long>(done) * p.experts;
    const dim3 grid(blocks, static_cast<unsigned>((now.tokens + many - 1) / many));
    router_logits<X, W, many><<<grid, logit_warps * 32, 0, stream>>>(now);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <class X>
cudaError_t launch_logits_of(const RouterProjection& p, cudaStream_t stream) {
  switch (p.w_type) {
    case PlainType::bf16:
      return launch_logits<X, __nv_bfloat16>(p, stream);
    case PlainType::f16:
      return launch_logits<X, __half>(p, stream);
    case PlainType::f32:
      return launch_logits<X, float>(p, stream);
  }
  return cudaErrorInvalidValue;
}

constexpr int few_warps = 4;

template <int values>
__global__ void __launch_bounds__(few_warps * 32)
    route_tokens(const __grid_constant__ RouterArgs router) {
  const int token = blockIdx.x * few_warps + threadIdx.x / 32;
  const int thread = blockIdx.x * few_warps * 32 + threadIdx.x;
  for (int i = thread; i < router.zero_words; i += gridDim.x * few_warps * 32) router.zeros[i] = 0;
  if (token < router.tokens) route_token<values>(router, token);
}

// A block that is done counts itself; the last one, which then sees all ids, divides the rows. No
// block waits for another.
template <int values, int warps>
__global__ void __launch_bounds__(warps * 32)
    route_tokens_grouped(const __grid_constant__ RouterArgs router,
                         const __grid_constant__ GroupedPlan plan,
                         const __grid_constant__ MoeF4Args args, void* scratch) {
  const int token = blockIdx.x * warps + threadIdx.x / 32;
  if (token < router.tokens) route_token<values>(router, token);
  __threadfence();
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) last = atomicAdd(&router.state->blocks_done, 1U) == gridDim.x - 1;
  if (__syncthreads_or(last) == 0) return;
  __threadfence();
  divide_rows<warps, true>(plan, args, scratch);
}

template <int values>
cudaError_t launch_choice(const RouterArgs& router, const GroupedPlan* plan, const MoeF4Args& args,
                          void* scratch, cudaStream_t stream) {
  // As many warps as have registers for 16 experts a lane.
  constexpr int many_warps = values > 8 ? sort_warps / 2 : sort_warps;
  const int warps = plan == nullptr ? few_warps : many_warps;
  const auto blocks = static_cast<unsigned>((router.tokens + warps - 1) / warps);
  if (plan == nullptr) {
    route_tokens<values><<<blocks, few_warps * 32, 0, stream>>>(router);
  } else {
    route_tokens_grouped<values, many_warps>
        <<<blocks, many_warps * 32, 0, stream>>>(router, *plan, args, scratch);
  }
  return cudaGetLastError();
}

cudaError_t launch(const RouterArgs& router, const GroupedPlan* plan, const MoeF4Args& args,
                   void* scratch, cudaStream_t stream) {
  if (router.tokens == 0) return cudaSuccess;
  if (router.experts > router_max_experts || router.top_k > router_max_top_k ||
      router.groups > router_max_groups) {
    return cudaErrorInvalidValue;
  }
  if (router.experts <= 128) return launch_choice<4>(router, plan, args, scratch, stream);
  if (router.experts <= 256) return launch_choice<8>(router, plan, args, scratch, stream);
  return launch_choice<16>(router, plan, args, scratch, stream);
}

}  // namespace

int launch_router_logits(const RouterProjection& projection, void* stream) {
  auto* on = static_cast<cudaStream_t>(stream);
  if (projection.tokens == 0) return cudaSuccess;
  switch (projection.x_type) {
    case PlainType::bf16:
      return launch_logits_of<__nv_bfloat16>(projection, on);
    case PlainType::f16:
      return launch_logits_of<__half>(projection, on);
    case PlainType::f32:
      return cudaErrorInvalidValue;  // no experts have such activations
  }
  return cudaErrorInvalidValue;
}

int launch_router(const RouterArgs& router, void* stream) {
  return launch(router, nullptr, {}, nullptr, static_cast<cudaStream_t>(stream));
}

int launch_router_grouped(const RouterArgs& router, const GroupedPlan& plan, const MoeF4Args& args,
                          void* scratch, void* stream) {
  return launch(router, &plan, args, scratch, static_cast<cudaStream_t>(stream));
}

}  // namespace fewbit::cuda
