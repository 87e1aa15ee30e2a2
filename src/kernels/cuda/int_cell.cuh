// SPDX-License-Identifier: Apache-2.0
// The inner step of the int4, int8, ternary and NF3 kernels: quads of cells
// (layout/cuda_int_cells.hpp) times the activations of up to 8 * tiles tokens.
//
// A code of int4 in the low bits of a bf16's mantissa, below the exponent of 128, is 128 + code (in
// f16 1024 + code); taking away 128 + zero point leaves an exact integer. So do the lower seven
// bits of a code of int8, less 128 or, where its sign is set, 256; its zero point is taken away by
// itself. Ternary codes are as those of int4. Magnitudes of NF3 are taken from a table in
// registers, as two numbers that are multiplied one after the other (nf3_table.hpp). Sums of such
// products are multiplied by the scale in f32, once for the cells that share it.
#pragma once

#include "kernels/cuda/f4_cell.cuh"

namespace fewbit::cuda {

// Scales and zero points of a lane's rows: half 0 row g, g+8, half 1 row g, g+8.
struct IntHeader {
  uint2 scales;
  std::uint32_t zeros;
};

template <int tiles>
__device__ __forceinline__ void add_scaled(CellSums<tiles>& sums, const CellSums<tiles>& part,
                                           const float (&scale)[2][2]) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums.value[m][t][i] = fmaf(scale[m][i / 2], part.value[m][t][i], sums.value[m][t][i]);
      }
    }
  }
}

// A cell's products with the tokens of all tiles.
template <class Element, int tiles>
__device__ __forceinline__ void multiply_cell(CellSums<tiles>& sums,
                                              const std::uint32_t (&a)[2][2][4],
                                              const std::uint8_t* tokens, int token_stride,
                                              int lane) {
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    const uint4 b = *reinterpret_cast<const uint4*>(tokens + t * token_stride + lane * 16);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      multiply_add<Element>(sums.value[m][t], a[m][0], b.x, b.y);
      multiply_add<Element>(sums.value[m][t], a[m][1], b.z, b.w);
    }
  }
}

// (word & mask) | exponents as one operation, which the compiler makes two of.
template <std::uint32_t mask>
__device__ __forceinline__ std::uint32_t code_pair(std::uint32_t word, std::uint32_t exponents) {
  std::uint32_t pair;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(pair) : "r"(word), "n"(mask), "r"(exponents));
  return pair;
}

// The two codes of int8 at bits 0 and 16.
template <class Type>
__device__ __forceinline__ typename Type::Pair signed_pair(std::uint32_t word) {
  using Pair = typename Type::Pair;
  const std::uint32_t lower = (word & 0x007F007FU) | Type::integers;  // 128 + seven bits
  const std::uint32_t taken = (word & 0x00800080U) | Type::integers;  // 128, or 256 below zero
  return __hsub2(pair_from<Pair>(lower), pair_from<Pair>(taken));
}

template <int bits, class Type>
struct IntCells {
  using Element = Type;
  using Pair = typename Type::Pair;
  // Loops over the cells of a piece by themselves.
  static constexpr bool own_pieces = true;
  static constexpr bool row_scales = false;
  static constexpr int narrow_warpgroups = bits == 8 ? 2 : 3;  // as the ring has room for
  static constexpr bool scaled_activations = false;
  // Scales are multiplied into sums.
  static constexpr bool scaled_sums = true;
  // Numbers that a weight is the sum of.
  static constexpr int terms = bits == 3 ? 2 : 1;

  static constexpr int cell_bytes = 128 * bits;  // of codes

  using Header = IntHeader;

  static __device__ __forceinline__ int bytes_of_cells(const StreamMatrix& m, int cells) {
    return cells * m.cell_bytes;
  }

  // Steps of the grouped products: half a quad, in the room of a unit behind what may be its only
  // header.
  static constexpr int most_cell_bytes = cell_bytes + 96;
  static __device__ __forceinline__ int scale_cells(const CellFormat& format) {
    return format.ints.scale_cells;
  }
  static __device__ __forceinline__ long long unit_bytes(const CellFormat& format, int depth) {
    return (depth + 127) / 128 * static_cast<long long>(format.ints.quad_bytes());
  }
  static __device__ __forceinline__ StepPart part_of_step(const CellFormat& format, int step) {
    const int header = format.ints.header_bytes();
    if (format.ints.scale_cells == 1) return {0, 2 * (header + cell_bytes)};
    if (bits == 2 && format.ints.scale_cells == 2) return {0, header + 2 * cell_bytes};
    return step % 2 == 0 ? StepPart{0, header + 2 * cell_bytes} : StepPart{header, 2 * cell_bytes};
  }
  static __device__ __forceinline__ IntHeader load_step_header(const std::uint8_t* unit, int cell,
                                                               int lane, const CellFormat& format) {
    return load_header(unit + cell * (format.ints.header_bytes() + cell_bytes), lane, format);
  }
  static __device__ __forceinline__ void dequantize_step(const std::uint8_t* unit, int cell,
                                                         int term, int lane,
                                                         const CellFormat& format,
                                                         const IntHeader& header,
                                                         std::uint32_t (&a)[2][2][4]) {
    const int headers = format.ints.scale_cells == 1 ? cell + 1 : 1;
    std::uint32_t zero[2][2];
    zero_pairs(header, zero);
    dequantize(unit + headers * format.ints.header_bytes() + cell * cell_bytes, term, lane, zero,
               a);
  }

  static __device__ __forceinline__ IntHeader load_header(const std::uint8_t* header, int lane,
                                                          const CellFormat& format) {
    IntHeader out;
    out.scales = *reinterpret_cast<const uint2*>(header + lane / 4 * 8);
    out.zeros = bits == 4 ? 0x08080808U : bits == 2 ? 0x01010101U : 0U;
    if (bits >= 4 && format.ints.zeros) {
      out.zeros = *reinterpret_cast<const std::uint32_t*>(header + 64 + lane / 4 * 4);
    }
    return out;
  }

  // [half][high]
  static __device__ __forceinline__ void scale_values(const IntHeader& header,
                                                      const CellFormat& format,
                                                      float (&scale)[2][2]) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const std::uint32_t pair = m == 0 ? header.scales.x : header.scales.y;
      const float2 half = __half22float2(*reinterpret_cast<const __half2*>(&pair));
      scale[m][0] = format.f16_scales ? half.x : __uint_as_float(pair << 16);
      scale[m][1] = format.f16_scales ? half.y : __uint_as_float(pair & 0xFFFF0000U);
    }
  }

  // [half][high]: the zero point twice, of int4 and ternary codes 128 or 1024 more.
  static __device__ __forceinline__ void zero_pairs(const IntHeader& header,
                                                    std::uint32_t (&zero)[2][2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (bits != 8) {
        zero[i / 2][i % 2] =
            __byte_perm(header.zeros, Element::integers >> 8, 0x4040U + 0x0101U * i);
      } else {
        zero[i / 2][i % 2] =
            bits_of(signed_pair<Element>(__byte_perm(header.zeros, 0, 0x4040U + 0x0101U * i)));
      }
    }
  }

  // A lane's part of a cell: [half][k16] registers of an m16n8k16 operand.
  static __device__ __forceinline__ void dequantize(const std::uint8_t* cell, int term, int lane,
                                                    const std::uint32_t (&zero)[2][2],
                                                    std::uint32_t (&a)[2][2][4]) {
    if constexpr (bits == 2) {
      dequantize2(*reinterpret_cast<const uint2*>(cell + lane * 8), zero, a);
    } else if constexpr (bits == 3) {
      dequantize3(*reinterpret_cast<const uint2*>(cell + lane * 8),
                  *reinterpret_cast<const std::uint32_t*>(cell + 256 + lane * 4), term, a);
    } else if constexpr (bits == 4) {
      dequantize4(*reinterpret_cast<const uint4*>(cell + lane * 16), zero, a);
    } else {
      dequantize8(cell + lane * 16, zero, a);
    }
  }

  static __device__ __forceinline__ std::uint32_t take_away(const Pair& pair, std::uint32_t zero) {
    return bits_of(__hsub2(pair, pair_from<Pair>(zero)));
  }

  static __device__ __forceinline__ void dequantize2(const uint2& codes,
                                                     const std::uint32_t (&zero)[2][2],
                                                     std::uint32_t (&a)[2][2][4]) {
    std::uint32_t exponents = Element::integers;
    asm("" : "+r"(exponents));  // stays in a register
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int m = i / 8;
      const std::uint32_t word = (m == 0 ? codes.x : codes.y) >> 2 * (i % 8);
      const std::uint32_t pair = code_pair<0x00030003U>(word, exponents);
      a[m][i / 4 % 2][i % 4] = take_away(pair_from<Pair>(pair), zero[m][i & 1]);
    }
  }

  // Bytes of four magnitudes become the bytes of the table that the bf16 of two pairs are.
  static __device__ __forceinline__ void dequantize3(const uint2& magnitudes, std::uint32_t signs,
                                                     int term, std::uint32_t (&a)[2][2][4]) {
    static_assert(std::is_same_v<Element, Bf16>);
    const std::uint32_t first = term == 0 ? Nf3Table::high01 : Nf3Table::low01;
    const std::uint32_t second = term == 0 ? Nf3Table::high23 : Nf3Table::low23;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const std::uint32_t word = m == 0 ? magnitudes.x : magnitudes.y;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t twice = (i == 0 ? word << 1 : word >> (2 * i - 1)) & 0x06060606U;
        const std::uint32_t bytes = twice * 0x11U + 0x10101010U;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const std::uint32_t pair = __byte_perm(first, second, k == 0 ? bytes : bytes >> 16);
          a[m][k][i] = pair ^ ((signs << (15 - (8 * m + 4 * k + i))) & 0x80008000U);
        }
      }
    }
  }

  static __device__ __forceinline__ void dequantize4(const uint4& codes,
                                                     const std::uint32_t (&zero)[2][2],
                                                     std::uint32_t (&a)[2][2][4]) {
    const std::uint32_t words[2][2] = {{codes.x, codes.y}, {codes.z, codes.w}};
    std::uint32_t exponents = Element::integers;
    asm("" : "+r"(exponents));  // stays in a register
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t pair = code_pair<0x000F000FU>(words[m][k] >> 4 * i, exponents);
          a[m][k][i] = take_away(pair_from<Pair>(pair), zero[m][i & 1]);
        }
      }
    }
  }

  static __device__ __forceinline__ void dequantize8(const std::uint8_t* of_lane,
                                                     const std::uint32_t (&zero)[2][2],
                                                     std::uint32_t (&a)[2][2][4]) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint4 codes = *reinterpret_cast<const uint4*>(of_lane + k * 512);
      const std::uint32_t words[2][2] = {{codes.x, codes.y}, {codes.z, codes.w}};
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          a[m][k][2 * i] = take_away(signed_pair<Element>(words[m][i]), zero[m][0]);
          a[m][k][2 * i + 1] = take_away(signed_pair<Element>(words[m][i] >> 8), zero[m][1]);
        }
      }
    }
  }

  // One quad, whose cells share a header, two of them do or all have their own.
  template <int tiles, int scale_cells>
  static __device__ __forceinline__ void run_quad(CellSums<tiles>& sums, const std::uint8_t* quad,
                                                  const std::uint8_t* tokens, int token_stride,
                                                  int lane, const CellFormat& format) {
    const int header_bytes = format.ints.header_bytes();
    IntHeader header = load_header(quad, lane, format);
    std::uint32_t zero[2][2];
    zero_pairs(header, zero);
    CellSums<tiles> part = {};
#pragma unroll(tiles == 1 && bits == 4 ? 4 : scale_cells == 2 ? 2 : 1)
    for (int cell = 0; cell < 4; ++cell) {
      if (cell > 0 && cell % scale_cells == 0) {
        header =
            load_header(quad + cell / scale_cells * header_bytes + cell * cell_bytes, lane, format);
        zero_pairs(header, zero);
        part = {};
      }
      const int headers = cell / scale_cells + 1;
      const std::uint8_t* codes = quad + headers * header_bytes + cell * cell_bytes;
#pragma unroll
      for (int term = 0; term < terms; ++term) {
        std::uint32_t a[2][2][4];
        dequantize(codes, term, lane, zero, a);
        multiply_cell<Element, tiles>(part, a, tokens + cell * 512, token_stride, lane);
      }
      if (cell % scale_cells == scale_cells - 1) {
        float scale[2][2];
        scale_values(header, format, scale);
        add_scaled(sums, part, scale);
      }
    }
  }

  template <int tiles>
  static __device__ __forceinline__ void run_piece(CellSums<tiles>& sums, const std::uint8_t* piece,
                                                   int /*cells: 4*/, const std::uint8_t* tokens,
                                                   int token_stride, int lane,
                                                   const CellFormat& format) {
    if (bits != 3 && format.ints.scale_cells == 4) {
      run_quad<tiles, 4>(sums, piece, tokens, token_stride, lane, format);
    } else if (bits == 2 && format.ints.scale_cells == 2) {
      run_quad<tiles, 2>(sums, piece, tokens, token_stride, lane, format);
    } else {
      run_quad<tiles, 1>(sums, piece, tokens, token_stride, lane, format);
    }
  }
};

}  // namespace fewbit::cuda
