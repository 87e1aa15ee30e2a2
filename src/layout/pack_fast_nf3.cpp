// SPDX-License-Identifier: Apache-2.0
// The portable variants, and the choice of one.
#include "layout/pack_fast_nf3.hpp"

#include <bit>
#include <cstring>

namespace fewbit {
namespace {

static_assert(std::endian::native == std::endian::little, "eight codes are loaded as one word");

// The low two bits of eight codes.
std::uint16_t low_bits(std::uint64_t codes) {
  std::uint64_t x = codes & 0x0303030303030303U;
  x = (x | x >> 6U) & 0x000f000f000f000fU;
  x = (x | x >> 12U) & 0x000000ff000000ffU;
  return static_cast<std::uint16_t>(x | x >> 24U);
}

// Bit 2 of eight codes: the product brings bit 8 i to 56 + i.
std::uint8_t high_bits(std::uint64_t codes) {
  return static_cast<std::uint8_t>((codes >> 2U & 0x0101010101010101U) * 0x0102040810204080U >>
                                   56U);
}

}  // namespace

void squeeze_nf3_generic(const SqueezeNf3& job) {
  for (std::size_t i = 0; i < job.count / 8; ++i) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, job.codes + 8 * i, sizeof eight);
    const std::uint16_t two_bits = low_bits(eight);
    std::memcpy(job.low + 2 * i, &two_bits, sizeof two_bits);
    job.high[i] = std::byte{high_bits(eight)};
  }
}

void join_nf3_generic(const JoinNf3& job) {
  for (std::int64_t i = 0; i < job.units; ++i) {
    std::memcpy(job.out + 12 * i, job.low + 8 * i, 8);
    std::memcpy(job.out + 12 * i + 8, job.high + 4 * i, 4);
  }
}

Nf3Kernels nf3_kernels(IsaLevel level) {
#if defined(__x86_64__)
  if (level >= IsaLevel::avx512) return {.squeeze = squeeze_nf3_avx512, .join = join_nf3_avx512};
  if (level == IsaLevel::avx2) return {.squeeze = squeeze_nf3_avx2, .join = join_nf3_generic};
#endif
  static_cast<void>(level);
  return {.squeeze = squeeze_nf3_generic, .join = join_nf3_generic};
}

}  // namespace fewbit
