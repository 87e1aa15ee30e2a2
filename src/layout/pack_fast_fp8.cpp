// SPDX-License-Identifier: Apache-2.0
// The portable variants, and the choice of one.
#include "layout/pack_fast_fp8.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/float_bits.hpp"
#include "core/float_convert.hpp"
#include "layout/byte_survey.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t run = 64;    // columns that are converted at once
constexpr std::int64_t group = 16;  // columns a scale of NVFP4

std::uint16_t load_u16(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

// f32_to_f8_e4m3_sat in steps that vectors have. Below 2^-6 codes are multiples of 2^-9, which is
// what a sum with 2^14 is rounded to.
std::uint8_t to_e4m3(float x) {
  constexpr float magic = 0x1p14F;
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t abs_bits = bits & ~float_bits::sign_bit;
  const std::uint32_t normal = ((abs_bits + 0x7ffffU + (abs_bits >> 20 & 1U)) >> 20) - (120U << 3);
  const std::uint32_t small =
      float_bits::of(float_bits::to_f32(abs_bits) + magic) - float_bits::of(magic);
  // A mask: the compiler would make a jump of a conditional with the sum behind it.
  const std::uint32_t is_small = 0U - static_cast<std::uint32_t>(abs_bits < 121U << 23);
  const std::uint32_t magnitude = (small & is_small) | (normal & ~is_small);
  const std::uint32_t clamped = std::min(magnitude, 0x7eU);
  const std::uint32_t nan =
      0x7fU & (0U - static_cast<std::uint32_t>(abs_bits > float_bits::infinity));
  const std::uint32_t code = clamped | nan;  // all bits of NaN
  return static_cast<std::uint8_t>((bits >> 24 & 0x80U) | code);
}

std::uint16_t largest_bf16(const std::byte* row, std::int64_t k) {
  constexpr std::int16_t infinity = 0x7f80;
  std::int16_t largest = 0;  // of the magnitudes' bits, which are in the order of magnitudes
  for (std::int64_t i = 0; i < k; ++i) {
    const auto magnitude = static_cast<std::int16_t>(load_u16(row + 2 * i) & 0x7fffU);
    largest = std::max(largest, magnitude > infinity ? std::int16_t{0} : magnitude);
  }
  return static_cast<std::uint16_t>(largest);
}

// By way of arrays of a known length, which the compiler makes vectors of.
void from_bf16(const std::byte* row, std::int64_t k, float inverse, std::byte* out) {
  for (std::int64_t first = 0; first < k; first += run) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(run, k - first));
    std::array<std::uint16_t, run> weights{};
    std::array<std::uint8_t, run> codes{};
    std::memcpy(weights.data(), row + 2 * first, 2 * count);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = to_e4m3(bf16_to_f32(weights[i]) * inverse);
    }
    std::memcpy(out + first, codes.data(), count);
  }
}

float step_of(const Nvfp4Groups& groups, std::int64_t g) {
  return groups.steps[std::to_integer<std::size_t>(groups.scales[g])];
}

// The largest code of a group gives its largest weight.
float largest_nvfp4(const Nvfp4Groups& groups) {
  float largest = 0.0F;
  for (std::int64_t g = 0; g < groups.count; ++g) {
    std::uint8_t code = 0;
    for (std::int64_t i = 0; i < group / 2; ++i) {
      const auto pair = std::to_integer<std::uint8_t>(groups.codes[g * (group / 2) + i]);
      code = std::max(code, static_cast<std::uint8_t>(pair & 7U));
      code = std::max(code, static_cast<std::uint8_t>(pair >> 4U & 7U));
    }
    const float weight = std::abs(f4_e2m1_to_f32(code) * step_of(groups, g));
    // NaN is no maximum, as of std::fmax, on which g++ 12 for AArch64 fails here (internal error).
    largest = weight > largest ? weight : largest;
  }
  return largest;
}

void look_up_group(const Nvfp4Groups& groups, std::int64_t g,
                   const std::array<std::byte, 16>& table, std::byte* out) {
  std::uint64_t pairs = 0;
  std::memcpy(&pairs, groups.codes + g * (group / 2), sizeof pairs);
  for (unsigned i = 0; i < group; ++i) out[g * group + i] = table[pairs >> (4 * i) & 15U];
}

void from_nvfp4(const Nvfp4Groups& groups, float inverse, std::byte* out) {
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const float step = step_of(groups, g);
    std::array<std::byte, 16> table{};
    for (std::uint8_t code = 0; code < 16; ++code) table[code] = fp8_of_e2m1(code, step, inverse);
    look_up_group(groups, g, table, out);
  }
}

void look_up(const Nvfp4Groups& groups, const Fp8Tables& tables, std::byte* out) {
  for (std::int64_t g = 0; g < groups.count; ++g) {
    look_up_group(groups, g, tables[std::to_integer<std::size_t>(groups.scales[g])], out);
  }
}

}  // namespace

const Fp8Kernels fp8_kernels_generic = {.largest_bf16 = largest_bf16,
                                        .from_bf16 = from_bf16,
                                        .largest_nvfp4 = largest_nvfp4,
                                        .from_nvfp4 = from_nvfp4,
                                        .look_up = look_up};

ScaleExtent scale_extent(const Nvfp4Groups& groups) {
  const ByteRange range = extent_of({groups.scales, static_cast<std::size_t>(groups.count)});
  return {.first = range.first, .last = range.last};
}

// Codes with a sign become the others' negatives.
std::byte fp8_of_e2m1(std::uint8_t code, float step, float inverse) {
  const float value = f4_e2m1_to_f32(code & 7U) * step * inverse;
  return static_cast<std::byte>(to_e4m3(value) ^ ((code & 8U) << 4));
}

const Fp8Kernels& fp8_kernels(IsaLevel level) {
#if defined(__x86_64__)
  if (level >= IsaLevel::avx512) return fp8_kernels_avx512;
  if (level == IsaLevel::avx2) return fp8_kernels_avx2;
#endif
  static_cast<void>(level);
  return fp8_kernels_generic;
}

}  // namespace fewbit
