// SPDX-License-Identifier: Apache-2.0
// Rows of weights to e4m3 codes, and the largest magnitudes that their scales follow from. All
// variants give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fewbit/selection.hpp"

namespace fewbit {

// Some groups of 16 weights of NVFP4.
struct Nvfp4Groups {
  const std::byte* codes;   // 8 bytes a group, the even k low
  const std::byte* scales;  // a byte a group
  const float* steps;       // of each of the 256 scale bytes, the global scale in it
  std::int64_t count;
};

// For each of the 256 scale bytes what the 16 codes become.
using Fp8Tables = std::array<std::array<std::byte, 16>, 256>;

// Whole lines of a result may go past the caches: fence_blocks after the last ones. What follows a
// row in memory is fetched.
struct Fp8Kernels {
  // Bits of the largest |weight| of a row of k bf16; NaN are not counted.
  std::uint16_t (*largest_bf16)(const std::byte* row, std::int64_t k);
  // to_e4m3(weight * inverse)
  void (*from_bf16)(const std::byte* row, std::int64_t k, float inverse, std::byte* out);
  // The largest |code * step|; NaN are not counted.
  float (*largest_nvfp4)(const Nvfp4Groups& groups);
  // to_e4m3(code * step * inverse), with the sign of the code on top.
  void (*from_nvfp4)(const Nvfp4Groups& groups, float inverse, std::byte* out);
  void (*look_up)(const Nvfp4Groups& groups, const Fp8Tables& tables, std::byte* out);
};
extern const Fp8Kernels fp8_kernels_generic;
extern const Fp8Kernels fp8_kernels_avx2;    // needs AVX2
extern const Fp8Kernels fp8_kernels_avx512;  // needs AVX-512 F, BW, VL

// The variant of an ISA level of this machine.
const Fp8Kernels& fp8_kernels(IsaLevel level);

// Bytes that the scales of some groups lie between.
struct ScaleExtent {
  int first;
  int last;
};
ScaleExtent scale_extent(const Nvfp4Groups& groups);

// The code of code * step * inverse.
std::byte fp8_of_e2m1(std::uint8_t code, float step, float inverse);

}  // namespace fewbit
