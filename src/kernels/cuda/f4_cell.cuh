// SPDX-License-Identifier: Apache-2.0
// The inner step of the f4_e2m1 kernels: one cell (32 weight rows x 32 k, layout/cuda_f4_cells.hpp)
// times the activations of up to 8 * tiles tokens.
//
// A code's bits are stored where a bf16 has them: sign 15, exponent 8 and 7, mantissa 6. So one
// rotation and one masking give two bf16 of value e2m1 * 2^-126 (e2m1 0.5 is a subnormal).
//   f4_e4m3 (NVFP4)  the scale, with the exponent that undoes 2^-126, is multiplied into the
//   weight:
//                    exact, at most 6 significant bits, times 2^-7
//   f4_e8m0 (MXFP4)  the scale is multiplied into the f32 sum over the cell's 32 k; activations
//                    carry 2^64 so that nothing on the way is subnormal
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/moe_f4.hpp"

namespace fewbit::cuda {

// What a step of 64 k of the grouped products takes of a unit: where it goes, from the beginning of
// the unit's room, and its size.
struct StepPart {
  int to;
  int bytes;
};

// Four bf16 pairs of a lane: rows g, g+8, g, g+8 of an m16n8k16 operand.
__device__ __forceinline__ void unpack_codes(std::uint32_t word, std::uint32_t (&pair)[4]) {
  constexpr std::uint32_t all = 0x81C081C0U;
  const std::uint32_t left6 = word << 6;
  const std::uint32_t right4 = __funnelshift_r(word, word, 4);
  const std::uint32_t right6 = __funnelshift_r(word, word, 6);
  const std::uint32_t left2 = word << 2;
  pair[0] = word & all;
  pair[1] = left6 & all;
  pair[2] = right4 & all;
  pair[3] = (right6 & 0x81808180U) | (left2 & 0x00400040U);
}

__device__ __forceinline__ std::uint32_t multiply_pair(std::uint32_t a, __nv_bfloat162 scale) {
  const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a), scale);
  return *reinterpret_cast<const std::uint32_t*>(&product);
}

// Sums of a lane: two row tiles, each with the fragments of its token tiles.
template <int tiles>
struct CellSums {
  float value[2][tiles][4];
};

// What a lane reads for one cell.
template <int tiles>
struct CellOperands {
  uint4 codes;
  std::uint32_t scales;
  uint4 tokens[tiles];
};

template <class Format, int tiles>
__device__ __forceinline__ void load_cell(CellOperands<tiles>& to, const std::uint8_t* cell,
                                          const std::uint8_t* tokens, int token_stride, int lane) {
  to.codes = *reinterpret_cast<const uint4*>(cell + lane * 16);
  to.scales = *reinterpret_cast<const std::uint32_t*>(cell + 512 + Format::scale_at(lane));
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    to.tokens[t] = *reinterpret_cast<const uint4*>(tokens + t * token_stride + lane * 16);
  }
}

// A lane's codes times bf16 scales: those of rows g, and of rows g+8, of tile 0 and tile 1.
__device__ __forceinline__ void dequantize_cell(const uint4& codes, std::uint32_t low_rows,
                                                std::uint32_t high_rows,
                                                std::uint32_t (&a)[2][2][4]) {
  const auto low = *reinterpret_cast<const __nv_bfloat162*>(&low_rows);
  const auto high = *reinterpret_cast<const __nv_bfloat162*>(&high_rows);
  const __nv_bfloat162 row_scale[2][2] = {{__low2bfloat162(low), __low2bfloat162(high)},
                                          {__high2bfloat162(low), __high2bfloat162(high)}};
  const std::uint32_t words[2][2] = {{codes.x, codes.y}, {codes.z, codes.w}};
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      unpack_codes(words[m][k], a[m][k]);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][k][i] = multiply_pair(a[m][k][i], row_scale[m][i & 1]);
    }
  }
}

struct F4E4m3 {
  using Element = Bf16;
  static constexpr int scale_bytes = 64;  // of a cell
  static constexpr int cell_bytes = 512 + scale_bytes;
  static constexpr bool own_pieces = false;
  static constexpr bool row_scales = false;
  static constexpr int narrow_warpgroups = 4;
  static constexpr bool scaled_sums = false;
  static constexpr bool scaled_activations = false;

  static constexpr int most_cell_bytes = cell_bytes;
  static __device__ __forceinline__ long long unit_bytes(const CellFormat& /*format*/, int depth) {
    return depth / 32LL * cell_bytes;
  }
  static __device__ __forceinline__ StepPart part_of_step(const CellFormat& /*format*/,
                                                          int /*step*/) {
    return {0, 2 * cell_bytes};
  }
  static __device__ __forceinline__ int bytes_of_cells(const StreamMatrix& /*m*/, int cells) {
    return cells * cell_bytes;
  }

  static __device__ __forceinline__ int scale_at(int lane) { return lane / 2 * 4; }

  // A lane's part of a cell times 2^-7: [tile][k16] registers of an m16n8k16 operand.
  static __device__ __forceinline__ void dequantize(const uint4& codes, std::uint32_t scales,
                                                    std::uint32_t (&a)[2][2][4]) {
    constexpr std::uint32_t bias = 0x71007100U;
    dequantize_cell(codes, (scales & 0x00FF00FFU) * 16U + bias,
                    ((scales >> 8) & 0x00FF00FFU) * 16U + bias, a);
  }

  // Bytes of a lane: tile 0 row g, g+8, tile 1 row g, g+8, for the k16 half that its k lie in.
  // Byte e, 5 bits of exponent and 3 of mantissa, becomes a bf16 of exponent field e/8 + 226.
  template <int tiles>
  static __device__ __forceinline__ void step(CellSums<tiles>& sums,
                                              const CellOperands<tiles>& in) {
    const uint4& codes = in.codes;
    const std::uint32_t scales = in.scales;
    const uint4(&b)[tiles] = in.tokens;
    constexpr std::uint32_t bias = 0x71007100U;  // 226 << 7 in both halves
    const std::uint32_t low_rows = (scales & 0x00FF00FFU) * 16U + bias;
    const std::uint32_t high_rows = ((scales >> 8) & 0x00FF00FFU) * 16U + bias;
    const auto low = *reinterpret_cast<const __nv_bfloat162*>(&low_rows);
    const auto high = *reinterpret_cast<const __nv_bfloat162*>(&high_rows);
    const __nv_bfloat162 row_scale[2][2] = {{__low2bfloat162(low), __low2bfloat162(high)},
                                            {__high2bfloat162(low), __high2bfloat162(high)}};
    const std::uint32_t words[2][2] = {{codes.x, codes.y}, {codes.z, codes.w}};
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        std::uint32_t a[4];
        unpack_codes(words[m][k], a);
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = multiply_pair(a[i], row_scale[m][i & 1]);
#pragma unroll
        for (int t = 0; t < tiles; ++t) {
          if (k == 0) {
            multiply_add<Bf16>(sums.value[m][t], a, b[t].x, b[t].y);
          } else {
            multiply_add<Bf16>(sums.value[m][t], a, b[t].z, b[t].w);
          }
        }
      }
    }
  }
};

struct F4E8m0 {
  using Element = Bf16;
  static constexpr int scale_bytes = 32;
  static constexpr int cell_bytes = 512 + scale_bytes;
  static constexpr bool own_pieces = false;
  static constexpr bool row_scales = false;
  static constexpr int narrow_warpgroups = 4;
  static constexpr bool scaled_sums = false;
  static constexpr bool scaled_activations = true;

  static constexpr int most_cell_bytes = cell_bytes;
  static __device__ __forceinline__ long long unit_bytes(const CellFormat& /*format*/, int depth) {
    return depth / 32LL * cell_bytes;
  }
  static __device__ __forceinline__ StepPart part_of_step(const CellFormat& /*format*/,
                                                          int /*step*/) {
    return {0, 2 * cell_bytes};
  }
  static __device__ __forceinline__ int bytes_of_cells(const StreamMatrix& /*m*/, int cells) {
    return cells * cell_bytes;
  }

  static __device__ __forceinline__ int scale_at(int lane) { return lane / 4 * 4; }

  // A lane's part of a cell times 2^-62; scales between grouped_least_e8m0 and grouped_most_e8m0.
  static __device__ __forceinline__ void dequantize(const uint4& codes, std::uint32_t scales,
                                                    std::uint32_t (&a)[2][2][4]) {
    constexpr std::uint32_t bias = 0x20002000U;  // exponent field + 64
    dequantize_cell(codes, (scales & 0x00FF00FFU) * 128U + bias,
                    ((scales >> 8) & 0x00FF00FFU) * 128U + bias, a);
  }

  static __device__ __forceinline__ float scale_value(std::uint32_t shifted) {
    return __uint_as_float(shifted & 0x7F800000U);
  }

  // Bytes of a lane: tile 0 row g, g+8, tile 1 row g, g+8; each is the exponent field of an f32.
  template <int tiles>
  static __device__ __forceinline__ void step(CellSums<tiles>& sums,
                                              const CellOperands<tiles>& in) {
    const uint4& codes = in.codes;
    const std::uint32_t scales = in.scales;
    const uint4(&b)[tiles] = in.tokens;
    const std::uint32_t words[2][2] = {{codes.x, codes.y}, {codes.z, codes.w}};
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      std::uint32_t a[2][4];
      unpack_codes(words[m][0], a[0]);
      unpack_codes(words[m][1], a[1]);
      const float low = scale_value(m == 0 ? scales << 23 : scales << 7);
      const float high = scale_value(m == 0 ? scales << 15 : scales >> 1);
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        float part[4] = {0.0F, 0.0F, 0.0F, 0.0F};
        multiply_add<Bf16>(part, a[0], b[t].x, b[t].y);
        multiply_add<Bf16>(part, a[1], b[t].z, b[t].w);
        sums.value[m][t][0] = fmaf(low, part[0], sums.value[m][t][0]);
        sums.value[m][t][1] = fmaf(low, part[1], sums.value[m][t][1]);
        sums.value[m][t][2] = fmaf(high, part[2], sums.value[m][t][2]);
        sums.value[m][t][3] = fmaf(high, part[3], sums.value[m][t][3]);
      }
    }
  }
};

}  // namespace fewbit::cuda
