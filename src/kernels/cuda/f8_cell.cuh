// SPDX-License-Identifier: Apache-2.0
// The inner step of the f8_e4m3 kernels: cells (layout/cuda_f8_cells.hpp) times the activations of
// up to 8 * tiles tokens. Codes are exact in bf16; sums are multiplied by the scale of their 16
// rows and, at the end, by that of the row.
#pragma once

#include "kernels/cuda/f4_cell.cuh"
#include "kernels/cuda/int4_cell.cuh"

namespace fewbit::cuda {

struct F8Cells {
  static constexpr bool own_pieces = true;
  static constexpr bool scaled_activations = false;
  static constexpr bool scaled_sums = true;
  static constexpr bool row_scales = true;
  static constexpr int cell_bytes = 1040;
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

  // Of the halves.
  struct Header {
    float2 scales;
  };
  // Scales are those of blocks of 128 k, or all 1.
  static __device__ __forceinline__ int scale_cells(const CellFormat& /*format*/) { return 4; }
  static __device__ __forceinline__ Header load_step_header(const std::uint8_t* unit, int cell,
                                                            int /*lane*/,
                                                            const CellFormat& /*format*/) {
    return {*reinterpret_cast<const float2*>(unit + cell * cell_bytes + 1024)};
  }
  static __device__ __forceinline__ void scale_values(const Header& header,
                                                      const CellFormat& /*format*/,
                                                      float (&scale)[2][2]) {
    scale[0][0] = scale[0][1] = header.scales.x;
    scale[1][0] = scale[1][1] = header.scales.y;
  }
  static __device__ __forceinline__ void dequantize_step(const std::uint8_t* unit, int cell,
                                                         int lane, const CellFormat& /*format*/,
                                                         const Header& /*header*/,
                                                         std::uint32_t (&a)[2][2][4]) {
    dequantize(unit + cell * cell_bytes, lane, a);
  }

  // A lane's part of a cell: [half][k16] registers of an m16n8k16 operand.
  static __device__ __forceinline__ void dequantize(const std::uint8_t* cell, int lane,
                                                    std::uint32_t (&a)[2][2][4]) {
    const __nv_bfloat162 factor = __float2bfloat162_rn(0x1p120F);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint4 codes = *reinterpret_cast<const uint4*>(cell + k * 512 + lane * 16);
      const std::uint32_t words[2][2] = {{codes.x, codes.y}, {codes.z, codes.w}};
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::uint32_t word = words[m][i];
          a[m][k][2 * i] = multiply_pair(word & 0x87F087F0U, factor);
          a[m][k][2 * i + 1] =
              multiply_pair((word << 4 & 0x80F080F0U) | (word >> 4 & 0x07000700U), factor);
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
      multiply_cell<tiles>(part, a, tokens + cell * 512, token_stride, lane);
      float scale[2][2];
      scale_values(load_step_header(at, 0, lane, format), format, scale);
      add_scaled(sums, part, scale);
    }
  }
};

}  // namespace fewbit::cuda
