// SPDX-License-Identifier: Apache-2.0
// The two ends of packing NF3 codes: a byte a code -> planes of two bits and of one, and planes in
// the order of units -> units. All variants give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fewbit/selection.hpp"

namespace fewbit {

// Codes 0 to 7, in order from the lowest bits on: low holds their two low bits, high the third.
struct SqueezeNf3 {
  const std::uint8_t* codes;
  std::size_t count;  // a multiple of 8
  std::byte* low;     // count / 4 bytes
  std::byte* high;    // count / 8 bytes
};

// Units of 8 bytes of one plane and 4 of the other.
struct JoinNf3 {
  const std::byte* low;
  const std::byte* high;
  std::int64_t units;  // a multiple of 16
  std::byte* out;      // whole lines may go past the caches: fence_blocks after the last ones
};

using SqueezeNf3Fn = void(const SqueezeNf3& job);
using JoinNf3Fn = void(const JoinNf3& job);
SqueezeNf3Fn squeeze_nf3_generic;
SqueezeNf3Fn squeeze_nf3_avx2;    // needs AVX2
SqueezeNf3Fn squeeze_nf3_avx512;  // needs AVX-512 F, BW, VL
JoinNf3Fn join_nf3_generic;
JoinNf3Fn join_nf3_avx512;  // needs AVX-512 F

// The variants of an ISA level of this machine.
struct Nf3Kernels {
  SqueezeNf3Fn* squeeze;
  JoinNf3Fn* join;
};
Nf3Kernels nf3_kernels(IsaLevel level);

}  // namespace fewbit
