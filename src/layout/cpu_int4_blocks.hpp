// SPDX-License-Identifier: Apache-2.0
// Blocks of 4-bit codes for vLLM's CPU kernels with int8 matrix instructions (AMX).
//
// A block is 32 n x block_k k; blocks are ordered by n, then k. With x = n%32, code (n, k) is in
// byte 64 * ((k % block_k)/4) + 4 * (8 * (x/16) + x%8) + k%4, low nibble where (x/8)%2 is 0. 128
// bytes follow the codes of a block: for each column the i32 sum of code - zero over the block.
#pragma once

#include "layout/place.hpp"

namespace fewbit {

// block_k: the smaller of the group size and 128.
template <std::int64_t block_k>
struct CpuInt4Blocks {
  static constexpr int bits = 4;
  static constexpr std::int64_t block_n = 32;
  static constexpr std::int64_t codes_bytes = block_n * block_k / 2;
  static constexpr std::int64_t sums_bytes = block_n * 4;
  static constexpr std::int64_t block_bytes = codes_bytes + sums_bytes;
  static_assert(block_k % 4 == 0);

  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.n % block_n == 0 && d.k % block_k == 0;
  }
  FEWBIT_HD static constexpr std::int64_t blocks(Dims d) { return d.n / block_n * (d.k / block_k); }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return blocks(d) * block_bytes; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) { return blocks(d) * sums_bytes * 8; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t x = n % block_n;
    const std::int64_t block = n / block_n * (d.k / block_k) + k / block_k;
    const std::int64_t in_block = 64 * (k % block_k / 4) + 4 * (8 * (x / 16) + x % 8) + k % 4;
    return {.byte = block * block_bytes + in_block, .bit = static_cast<int>(x / 8 % 2) * 4};
  }
  // Where the sum of column n over the block of k lies.
  FEWBIT_HD static constexpr Place sum_place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t block = n / block_n * (d.k / block_k) + k / block_k;
    return {.byte = block * block_bytes + codes_bytes + n % block_n * 4, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t block = p.byte / block_bytes;
    const std::int64_t in_block = p.byte % block_bytes;
    if (in_block >= codes_bytes) return {.n = -1, .k = -1};
    const std::int64_t column = in_block % 64 / 4;
    const std::int64_t blocks_k = d.k / block_k;
    return {.n = block / blocks_k * block_n + 16 * (column / 8) + 8 * (p.bit / 4) + column % 8,
            .k = block % blocks_k * block_k + in_block / 64 * 4 + in_block % 4};
  }
};

// Scales (32 bits) and zero points (8 bits) beside them: [n/32, groups, 32]. dims.k = groups.
template <int element_bits>
struct CpuInt4Groups {
  static constexpr int bits = element_bits;
  static constexpr std::int64_t element_bytes = bits / 8;
  static constexpr std::int64_t block_n = 32;

  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.n % block_n == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * d.k * element_bytes; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t index = (n / block_n * d.k + k) * block_n + n % block_n;
    return {.byte = index * element_bytes, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t index = p.byte / element_bytes;
    const std::int64_t row = index / block_n;
    return {.n = row / d.k * block_n + index % block_n, .k = row % d.k};
  }
};

}  // namespace fewbit
