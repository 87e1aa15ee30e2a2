// SPDX-License-Identifier: Apache-2.0
// Blocks of GGUF's "K" types as the CPU kernels read them: 16 rows together, nothing changed.
//
// The blocks of 16 rows at one run of 256 k lie together, cut into units of 1, 2 or 4 bytes, each
// unit of all rows before the next one: a vector load takes a unit of 16 rows. Codes are units of 4
// bytes, so 64 bytes hold four codes (of other k also their other bits) of each row. Rows are
// padded to 16 with zeros, whose scales are zero.
#pragma once

#include <array>

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Bytes [begin, end) of a block, in units.
struct LaneRun {
  int begin = 0;
  int end = 0;
  int unit = 1;
};

// d; dmin; scales[12]; qs[128]
struct Q4kBlock {
  static constexpr std::int64_t bytes = 144;
  static constexpr std::array runs{LaneRun{0, 4, 2}, LaneRun{4, 144, 4}};
};
// ql[128]; qh[64]; scales[16]; d
struct Q6kBlock {
  static constexpr std::int64_t bytes = 210;
  static constexpr std::array runs{LaneRun{0, 192, 4}, LaneRun{192, 208, 1}, LaneRun{208, 210, 2}};
};

template <class Block>
struct CpuBlockLane16 {
  static constexpr std::int64_t block_rows = 16;
  static constexpr std::int64_t block_k = 256;
  static constexpr std::int64_t cell_bytes = Block::bytes * block_rows;

  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.k % block_k == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) {
    return ceil_div(d.n, block_rows) * (d.k / block_k) * cell_bytes;
  }
  // Where byte i of the block of row n that holds k lies.
  FEWBIT_HD static constexpr std::int64_t byte(Dims d, std::int64_t n, std::int64_t k,
                                               std::int64_t i) {
    const std::int64_t cell = n / block_rows * (d.k / block_k) + k / block_k;
    return cell * cell_bytes + byte_in_cell(n % block_rows, i);
  }
  FEWBIT_HD static constexpr std::int64_t byte_in_cell(std::int64_t row, std::int64_t i) {
    for (const LaneRun& run : Block::runs) {
      if (i >= run.end) continue;
      const std::int64_t in_run = i - run.begin;
      return run.begin * block_rows + in_run / run.unit * run.unit * block_rows + row * run.unit +
             in_run % run.unit;
    }
    return -1;
  }
  // What lies at a byte of the buffer: the element of the block's first k, and the byte in it.
  struct Origin {
    Element first;
    std::int64_t byte = 0;
  };
  FEWBIT_HD static constexpr Origin origin(Dims d, std::int64_t at) {
    const std::int64_t cell = at / cell_bytes;
    const std::int64_t in_cell = at % cell_bytes;
    const std::int64_t cells = d.k / block_k;
    Origin out{.first = {.n = cell / cells * block_rows, .k = cell % cells * block_k}, .byte = -1};
    for (const LaneRun& run : Block::runs) {
      if (in_cell >= run.end * block_rows) continue;
      const std::int64_t in_run = in_cell - run.begin * block_rows;
      out.first.n += in_run / run.unit % block_rows;
      out.byte = run.begin + in_run / (run.unit * block_rows) * run.unit + in_run % run.unit;
      return out;
    }
    return out;
  }
};

// The codes, one layout a plane of their bits; scales and the other planes are spare.
template <class Block, class Plane>
struct CpuBlockPlane : CpuBlockLane16<Block> {
  using Lanes = CpuBlockLane16<Block>;
  static constexpr int bits = Plane::bits;

  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return Lanes::bytes(d) * 8 - d.n * d.k * bits;
  }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const Place in_block = Plane::place(k % Lanes::block_k);
    return {.byte = Lanes::byte(d, n, k, in_block.byte), .bit = in_block.bit};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const auto origin = Lanes::origin(d, p.byte);
    const std::int64_t k = Plane::inverse({.byte = origin.byte, .bit = p.bit});
    if (k < 0) return {.n = -1, .k = -1};
    return {.n = origin.first.n, .k = origin.first.k + k};
  }
};

// 32 bytes hold 32 codes in their low nibbles and then 32 in their high ones.
struct Q4kCodes {
  static constexpr int bits = 4;
  FEWBIT_HD static constexpr Place place(std::int64_t k) {
    return {.byte = 16 + k / 64 * 32 + k % 32, .bit = static_cast<int>(k / 32 % 2) * 4};
  }
  FEWBIT_HD static constexpr std::int64_t inverse(Place p) {
    if (p.byte < 16) return -1;
    return (p.byte - 16) / 32 * 64 + p.bit / 4 * 32 + (p.byte - 16) % 32;
  }
};
// 64 bytes hold the low nibbles of 128 codes: 64 in their low ones and then 64 in their high ones.
struct Q6kLow {
  static constexpr int bits = 4;
  FEWBIT_HD static constexpr Place place(std::int64_t k) {
    return {.byte = k / 128 * 64 + k % 64, .bit = static_cast<int>(k / 64 % 2) * 4};
  }
  FEWBIT_HD static constexpr std::int64_t inverse(Place p) {
    if (p.byte < 0 || p.byte >= 128) return -1;
    return p.byte / 64 * 128 + p.bit / 4 * 64 + p.byte % 64;
  }
};
// 32 bytes hold the high two bits of 128 codes, four runs of 32.
struct Q6kHigh {
  static constexpr int bits = 2;
  FEWBIT_HD static constexpr Place place(std::int64_t k) {
    return {.byte = 128 + k / 128 * 32 + k % 32, .bit = static_cast<int>(k / 32 % 4) * 2};
  }
  FEWBIT_HD static constexpr std::int64_t inverse(Place p) {
    if (p.byte < 128 || p.byte >= 192) return -1;
    return (p.byte - 128) / 32 * 128 + p.bit / 2 * 32 + p.byte % 32;
  }
};
using CpuQ4kCodes = CpuBlockPlane<Q4kBlock, Q4kCodes>;
using CpuQ6kLow = CpuBlockPlane<Q6kBlock, Q6kLow>;
using CpuQ6kHigh = CpuBlockPlane<Q6kBlock, Q6kHigh>;

// Rows of blocks, of any alignment, into that layout and back; every byte of the result is written.
// Precondition: CpuBlockLane16<Block>::accepts(dims).
void pack_cpu_q4_k(Dims dims, const std::uint8_t* rows, std::uint8_t* out);
void pack_cpu_q6_k(Dims dims, const std::uint8_t* rows, std::uint8_t* out);
void unpack_cpu_q4_k(Dims dims, const std::uint8_t* packed, std::uint8_t* rows);
void unpack_cpu_q6_k(Dims dims, const std::uint8_t* packed, std::uint8_t* rows);

}  // namespace fewbit
