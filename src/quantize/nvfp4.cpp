// SPDX-License-Identifier: Apache-2.0
#include "quantize/nvfp4.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float_convert.hpp"
#include "core/number_text.hpp"
#include "fewbit/quantize.hpp"

namespace fewbit {
namespace {

constexpr std::size_t group = nvfp4_group_size;
constexpr float largest_code = 6.0F;
constexpr float largest_scale = 448.0F;
constexpr float smallest_scale = 0x1p-9F;
// Quotients from here on do not round to the largest scale any more.
constexpr float clamps_from = 464.0F;

std::uint8_t block_scale(float amax, float global_scale, Nvfp4Counts& counts) {
  if (amax == 0.0F) return f32_to_f8_e4m3(1.0F);
  const float scale = amax / (largest_code * global_scale);
  if (scale < smallest_scale || scale >= clamps_from) ++counts.clamped_scales;
  return f32_to_f8_e4m3(std::clamp(scale, smallest_scale, largest_scale));
}

void quantize_block(std::span<const float> weights, float global_scale, std::span<std::byte> codes,
                    std::byte& scale_out, Nvfp4Counts& counts) {
  float amax = 0.0F;
  for (const float w : weights) amax = std::max(amax, std::abs(w));
  const std::uint8_t scale = block_scale(amax, global_scale, counts);
  const float step = f8_e4m3_to_f32(scale) * global_scale;
  unsigned magnitudes = 0;
  for (std::size_t i = 0; i < group; i += 2) {
    const unsigned low = f32_to_f4_e2m1(weights[i] / step);
    const unsigned high = f32_to_f4_e2m1(weights[i + 1] / step);
    magnitudes |= (low | high) & 7U;
    codes[i / 2] = static_cast<std::byte>(low | (high << 4U));
  }
  if (amax > 0.0F && magnitudes == 0) ++counts.erased_blocks;
  scale_out = static_cast<std::byte>(scale);
}

}  // namespace

float nvfp4_global_scale(float amax) {
  if (amax == 0.0F) return 1.0F;
  return std::max(amax / (largest_code * largest_scale), std::numeric_limits<float>::denorm_min());
}

Result<float> finite_amax(std::int64_t k, std::int64_t first_row, std::span<const float> rows) {
  float amax = 0.0F;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!std::isfinite(rows[i])) {
      const auto at = static_cast<std::int64_t>(i);
      return Error{ErrorCode::corrupt,
                   fmt::format("weight [{}, {}] is {}, expected a finite number",
                               first_row + at / k, at % k, number_text(rows[i])),
                   ""};
    }
    amax = std::max(amax, std::abs(rows[i]));
  }
  return amax;
}

void quantize_nvfp4_rows(std::span<const float> weights, float global_scale,
                         std::span<std::byte> codes, std::span<std::byte> scales,
                         Nvfp4Counts& counts) {
  for (std::size_t b = 0; b < scales.size(); ++b) {
    quantize_block(weights.subspan(b * group, group), global_scale,
                   codes.subspan(b * group / 2, group / 2), scales[b], counts);
  }
}

Result<Nvfp4Matrix> quantize_nvfp4(std::int64_t n, std::int64_t k, std::span<const float> weights) {
  FEWBIT_TRY(const std::int64_t elements, shape_elements(Shape{n, k}));
  if (n < 1 || k < 1 || k % nvfp4_group_size != 0 ||
      weights.size() != static_cast<std::size_t>(elements)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} weights of a matrix [{}, {}], expected n * k with k a multiple of "
                             "{}",
                             weights.size(), n, k, nvfp4_group_size),
                 ""};
  }
  FEWBIT_TRY(const float amax, finite_amax(k, 0, weights));
  Nvfp4Matrix out;
  out.global_scale = nvfp4_global_scale(amax);
  out.codes.resize(weights.size() / 2);
  out.scales.resize(weights.size() / nvfp4_group_size);
  Nvfp4Counts counts;
  quantize_nvfp4_rows(weights, out.global_scale, out.codes, out.scales, counts);
  out.erased_blocks = counts.erased_blocks;
  out.clamped_scales = counts.clamped_scales;
  return out;
}

}  // namespace fewbit
