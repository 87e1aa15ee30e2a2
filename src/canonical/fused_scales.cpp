// SPDX-License-Identifier: Apache-2.0
#include "canonical/fused_scales.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/checked.hpp"
#include "core/float_convert.hpp"

namespace fewbit {
namespace {

Error bad(std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), "scales of a fused matrix"};
}

// Sum of the rows.
Result<std::int64_t> check_shards(std::span<const float> scales,
                                  std::span<const std::int64_t> rows) {
  if (scales.empty() || scales.size() != rows.size()) {
    return bad(fmt::format("{} scales for {} shards", scales.size(), rows.size()));
  }
  std::int64_t sum = 0;
  for (const std::int64_t count : rows) {
    const auto next = count < 0 ? std::nullopt : checked_add(sum, count);
    if (!next) return bad(fmt::format("a shard of {} rows", count));
    sum = *next;
  }
  return sum;
}

float round_to_f16(float value) { return f16_to_f32(f32_to_f16(value)); }

}  // namespace

Result<std::vector<float>> spread_shard_scales(std::span<const float> scales,
                                               std::span<const std::int64_t> rows) {
  const std::vector<float> same(rows.size(), scales.size() == 1 ? scales.front() : 0.0F);
  const std::span<const float> each = scales.size() == 1 ? std::span<const float>(same) : scales;
  FEWBIT_TRY(const std::int64_t sum, check_shards(each, rows));
  std::vector<float> spread;
  spread.reserve(static_cast<std::size_t>(sum));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    spread.insert(spread.end(), static_cast<std::size_t>(rows[i]), each[i]);
  }
  return spread;
}

Result<float> merge_shard_scales(std::span<const float> scales, std::span<const std::int64_t> rows,
                                 std::int64_t k, std::span<std::uint8_t> codes) {
  FEWBIT_TRY(const std::int64_t sum, check_shards(scales, rows));
  const auto size = k < 0 ? std::nullopt : checked_mul(sum, k);
  if (!size || codes.size() != static_cast<std::uint64_t>(*size)) {
    return bad(fmt::format("{} codes, expected {} rows of {}", codes.size(), sum, k));
  }
  const float largest = *std::max_element(scales.begin(), scales.end());
  constexpr float unset = -448.0F;
  if (scales.back() <= unset) return largest;
  std::size_t at = 0;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    for (const std::size_t end = at + static_cast<std::size_t>(rows[i] * k); at < end; ++at) {
      const float value = round_to_f16(f8_e4m3_to_f32(codes[at]) * scales[i]);
      codes[at] = f32_to_f8_e4m3_sat(value / largest);
    }
  }
  return largest;
}

}  // namespace fewbit
