// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix products (compute capability 9.0): 64 rows of A from registers, `columns` rows
// of B from shared memory, 16 deep, bf16 or, where columns are few enough for scaled sums, f16,
// with f32 sums.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/activation_type.cuh"

namespace fewbit::cuda {

// B: rows of 64 bf16 (128 bytes), whose 16-byte chunks are swizzled: chunk c of row r lies at
// c ^ (r % 8). `address` is that of the first row, a multiple of 1024, plus 32 a step of k.
__device__ __forceinline__ std::uint64_t swizzled_matrix(std::uint32_t address) {
  constexpr std::uint64_t rows_of_8 = 1024;  // bytes from one group of 8 rows to the next
  constexpr std::uint64_t swizzle_128 = 1;
  return (address & 0x3FFFFU) >> 4 | std::uint64_t{1} << 16 | (rows_of_8 >> 4) << 32 |
         swizzle_128 << 62;
}

// Before products whose registers other instructions have written.
__device__ __forceinline__ void products_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all but the last `pending` groups are done.
template <int pending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Sums are read after this point only.
template <int count>
__device__ __forceinline__ void sums_ready(float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
// Operands that products in flight read stay as they are until this point.
__device__ __forceinline__ void operands_read(const std::uint32_t (&a)[4]) {
  asm volatile("" ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]) : "memory");
}

// keep: 0 begins new sums, whatever d holds.
template <int columns>
struct WarpgroupProduct;

template <>
struct WarpgroupProduct<8> {
  template <class Element>
  static __device__ __forceinline__ void add(float (&d)[4], const std::uint32_t (&a)[4],
                                             std::uint64_t b, int keep = 1) {
    static_assert(std::is_same_v<Element, Bf16>);
    asm volatile(
        "{.reg .pred kept; setp.ne.b32 kept, %9, 0;"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3"
        "}, {%4,%5,%6,%7}, %8, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
  }
};

template <>
struct WarpgroupProduct<16> {
  template <class Element>
  static __device__ __forceinline__ void add(float (&d)[8], const std::uint32_t (&a)[4],
                                             std::uint64_t b, int keep = 1) {
    asm volatile(
        "{.reg .pred kept; setp.ne.b32 kept, %13, 0;"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.%14.%14 {"
        "%0,%1,%2,%3,%4,%5,%6,%7"
        "}, {%8,%9,%10,%11}, %12, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "C"(Element::ptx_type));
  }
};

template <>
struct WarpgroupProduct<24> {
  template <class Element>
  static __device__ __forceinline__ void add(float (&d)[12], const std::uint32_t (&a)[4],
                                             std::uint64_t b, int keep = 1) {
    static_assert(std::is_same_v<Element, Bf16>);
    asm volatile(
        "{.reg .pred kept; setp.ne.b32 kept, %17, 0;"
        "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11"
        "}, {%12,%13,%14,%15}, %16, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
  }
};

template <>
struct WarpgroupProduct<32> {
  template <class Element>
  static __device__ __forceinline__ void add(float (&d)[16], const std::uint32_t (&a)[4],
                                             std::uint64_t b, int keep = 1) {
    asm volatile(
        "{.reg .pred kept; setp.ne.b32 kept, %21, 0;"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.%22.%22 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
        "}, {%16,%17,%18,%19}, %20, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "C"(Element::ptx_type));
  }
};

template <>
struct WarpgroupProduct<48> {
  template <class Element>
  static __device__ __forceinline__ void add(float (&d)[24], const std::uint32_t (&a)[4],
                                             std::uint64_t b, int keep = 1) {
    static_assert(std::is_same_v<Element, Bf16>);
    asm volatile(
        "{.reg .pred kept; setp.ne.b32 kept, %29, 0;"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
        "%22,%23"
        "}, {%24,%25,%26,%27}, %28, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
  }
};

template <>
struct WarpgroupProduct<64> {
  template <class Element>
  static __device__ __forceinline__ void add(float (&d)[32], const std::uint32_t (&a)[4],
                                             std::uint64_t b, int keep = 1) {
    asm volatile(
        "{.reg .pred kept; setp.ne.b32 kept, %37, 0;"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.%38.%38 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
        "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
        "}, {%32,%33,%34,%35}, %36, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "C"(Element::ptx_type));
  }
};

template <>
struct WarpgroupProduct<96> {
  template <class Element>
  static __device__ __forceinline__ void add(float (&d)[48], const std::uint32_t (&a)[4],
                                             std::uint64_t b, int keep = 1) {
    static_assert(std::is_same_v<Element, Bf16>);
    asm volatile(
        "{.reg .pred kept; setp.ne.b32 kept, %53, 0;"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
        "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,"
        "%42,%43,%44,%45,%46,%47"
        "}, {%48,%49,%50,%51}, %52, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
          "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
          "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
  }
};

template <>
struct WarpgroupProduct<128> {
  template <class Element>
  static __device__ __forceinline__ void add(float (&d)[64], const std::uint32_t (&a)[4],
                                             std::uint64_t b, int keep = 1) {
    static_assert(std::is_same_v<Element, Bf16>);
    asm volatile(
        "{.reg .pred kept; setp.ne.b32 kept, %69, 0;"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
        "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,"
        "%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
        "%62,%63"
        "}, {%64,%65,%66,%67}, %68, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
          "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
          "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
          "+f"(d[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
  }
};

}  // namespace fewbit::cuda
