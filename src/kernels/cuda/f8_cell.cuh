// SPDX-License-Identifier: Apache-2.0
// The inner step of the f8_e4m3 kernels: cells (layout/cuda_f8_cells.hpp) times the activations of
// up to 8 * tiles tokens. Codes are exact in bf16 and in f16; sums are multiplied by the scale of
// their 16 rows and, at the end, by that of the row, or (MXFP8) by the e8m0 scale that a row has
// for 32 k.
#pragma once

#include "kernels/cuda/f4_cell.cuh"
#include "kernels/cuda/int_cell.cuh"

namespace fewbit::cuda {

// Scales of a lane's cell: of the halves, or e8m0 of half 0 row g, g+8, half 1 row g, g+8.
template <bool mx>
struct F8Header {
  float2 scales;
};
template <>
struct F8Header<true> {
  std::uint32_t scales;
};

template <bool mx, class Type>
struct F8Cells {
  using Element = Type;
  static constexpr bool own_pieces = true;
  static constexpr bool scaled_activations = false;
  static constexpr bool scaled_sums = true;
  static constexpr int terms = 1;
  static constexpr bool row_scales = !mx;
  static constexpr int cell_bytes = mx ? 1056 : 1040;
  static constexpr int most_cell_bytes = cell_bytes;
  static constexpr int narrow_warpgroups = 2;  // as many as the ring has room for

  static __device__ __forceinline__ int bytes_of_cells(const StreamMatrix& /*m*/, int cells) {
    return cells * cell_bytes;
  }
  static __device__ __forceinline__ long long unit_bytes(const CellFormat& /*format*/, int depth) {
    return depth / 32LL * cell_bytes;
  }
  static __device__ __forceinline__ StepPart part_of_step(const CellFormat& /*format*/,
                                                          int /*step*/) {
    return {0, 2 * cell_bytes};
  }

  using Header = F8Header<mx>;
  // Scales are those of blocks of 128 k, or all 1.
  static __device__ __forceinline__ int scale_cells(const CellFormat& /*format*/) {
    return mx ? 1 : 4;
  }
  static __device__ __forceinline__ Header load_step_header(const std::uint8_t* unit, int cell,
                                                            int lane,
                                                            const CellFormat& /*format*/) {
    const std::uint8_t* scales = unit + cell * cell_bytes + 1024;
    if constexpr (mx) {
      return {*reinterpret_cast<const std::uint32_t*>(scales + lane / 4 * 4)};
    } else {
      return {*reinterpret_cast<const float2*>(scales)};
    }
  }
  // 2^(byte - 127), exact down to 2^-127; 255 is NaN.
  static __device__ __forceinline__ float e8m0_value(std::uint32_t byte) {
    return __uint_as_float(byte == 255 ? 0x7FC00000U : byte == 0 ? 0x00400000U : byte << 23);
  }
  static __device__ __forceinline__ void scale_values(const Header& header,
                                                      const CellFormat& /*format*/,
                                                      float (&scale)[2][2]) {
    if constexpr (mx) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scale[i / 2][i % 2] = e8m0_value(header.scales >> 8 * i & 255U);
    } else {
      scale[0][0] = scale[0][1] = header.scales.x;
      scale[1][0] = scale[1][1] = header.scales.y;
    }
  }
  static __device__ __forceinline__ void dequantize_step(const std::uint8_t* unit, int cell,
                                                         int /*term*/, int lane,
                                                         const CellFormat& /*format*/,
                                                         const Header& /*header*/,
                                                         std::uint32_t (&a)[2][2][4]) {
    dequantize(unit + cell * cell_bytes, lane, a);
  }

  // From signs at bits 15 and the other bits of codes at 10 to 4, where a bf16 of 2^-120 has them;
  // 3 bits on they are an f16 of 2^-8.
  static __device__ __forceinline__ std::uint32_t value_pair(std::uint32_t bits) {
    if constexpr (std::is_same_v<Element, F16>) {
      const std::uint32_t half = (bits & 0x80008000U) | (bits << 3 & 0x3F803F80U);
      return bits_of(__hmul2(pair_from<__half2>(half), __float2half2_rn(0x1p8F)));
    } else {
      return multiply_pair(bits, __float2bfloat162_rn(0x1p120F));
    }
  }

  // A lane's part of a cell: [half][k16] registers of an m16n8k16 operand.
  static __device__ __forceinline__ void dequantize(const std::uint8_t* cell, int lane,
                                                    std::uint32_t (&a)[2][2][4]) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint4 codes = *reinterpret_cast<const uint4*>(cell + k * 512 + lane * 16);
      const std::uint32_t words[2][2] = {{codes.x, codes.y}, {codes.z, codes.w}};
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::uint32_t word = words[m][i];
          a[m][k][2 * i] = value_pair(word & 0x87F087F0U);
          a[m][k][2 * i + 1] = value_pair((word << 4 & 0x80F080F0U) | (word >> 4 & 0x07000700U));
        }
      }
    }
  }

  template <int tiles>
  static __device__ __forceinline__ void run_piece(CellSums<tiles>& sums, const std::uint8_t* piece,
                                                   int cells, const std::uint8_t* tokens,
                                                   int token_stride, int lane,
                                                   const CellFormat& format) {
#pragma unroll 1
    for (int cell = 0; cell < cells; ++cell) {
      const std::uint8_t* at = piece + cell * cell_bytes;
      std::uint32_t a[2][2][4];
      dequantize(at, lane, a);
      CellSums<tiles> part = {};
      multiply_cell<Element, tiles>(part, a, tokens + cell * 512, token_stride, lane);
      float scale[2][2];
      scale_values(load_step_header(at, 0, lane, format), format, scale);
      add_scaled(sums, part, scale);
    }
  }
};

}  // namespace fewbit::cuda
