// SPDX-License-Identifier: Apache-2.0
#include "layout/fp8_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/float_bits.hpp"
#include "core/float_convert.hpp"
#include "layout/check_tensor.hpp"
#include "layout/parallel_ranges.hpp"

namespace fewbit {
namespace {

constexpr float largest_fp8 = 448.0F;
constexpr std::int64_t run = 64;    // columns that are converted at once
constexpr std::int64_t group = 16;  // columns a scale of NVFP4

float scale_of(float largest) { return largest > 0.0F ? largest / largest_fp8 : 1.0F; }

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

float bf16_row(const std::byte* row, std::int64_t k, std::byte* out) {
  constexpr std::int16_t infinity = 0x7f80;
  std::int16_t largest = 0;  // of the magnitudes' bits, which are in the order of magnitudes
  for (std::int64_t i = 0; i < k; ++i) {
    const auto magnitude = static_cast<std::int16_t>(load_u16(row + 2 * i) & 0x7fffU);
    largest = std::max(largest, magnitude > infinity ? std::int16_t{0} : magnitude);
  }
  const float scale = scale_of(bf16_to_f32(static_cast<std::uint16_t>(largest)));
  const float inverse = 1.0F / scale;
  // By way of arrays of a known length, which the compiler makes vectors of.
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
  return scale;
}

// One row of NVFP4.
struct Row {
  const std::byte* codes;
  const std::byte* scales;
  float global_scale;

  float step(std::int64_t g) const {
    return f8_e4m3_to_f32(std::to_integer<std::uint8_t>(scales[g])) * global_scale;
  }
};

// The largest code of a group gives its largest weight.
float largest_weight(const Row& row, std::int64_t groups) {
  float largest = 0.0F;
  for (std::int64_t g = 0; g < groups; ++g) {
    std::uint8_t code = 0;
    for (std::int64_t i = 0; i < group / 2; ++i) {
      const auto pair = std::to_integer<std::uint8_t>(row.codes[g * (group / 2) + i]);
      code = std::max(code, static_cast<std::uint8_t>(pair & 7U));
      code = std::max(code, static_cast<std::uint8_t>(pair >> 4U & 7U));
    }
    largest = std::fmax(largest, std::abs(f4_e2m1_to_f32(code) * row.step(g)));
  }
  return largest;
}

// What the codes become under each scale that a row has, made where one is first met.
class Tables {
 public:
  using Table = std::array<std::byte, 16>;

  // inverse: of the scale of what follows.
  void start(float inverse) {
    if (inverse != inverse_) made_.fill(false);
    inverse_ = inverse;
  }
  const Table& of(const Row& row, std::int64_t g) {
    const auto scale = std::to_integer<std::size_t>(row.scales[g]);
    if (!made_[scale]) tables_[scale] = make(row.step(g));
    made_[scale] = true;
    return tables_[scale];
  }

 private:
  // Codes with a sign become the others' negatives.
  Table make(float step) const {
    Table table{};
    for (std::uint8_t code = 0; code < 8; ++code) {
      const auto byte = static_cast<std::byte>(to_e4m3(f4_e2m1_to_f32(code) * step * inverse_));
      table[code] = byte;
      table[code + 8U] = byte ^ std::byte{0x80};
    }
    return table;
  }

  float inverse_ = 0.0F;
  std::array<bool, 256> made_{};
  std::array<Table, 256> tables_{};
};

float nvfp4_row(const Row& row, std::int64_t groups, Fp8RowScale kind, Tables& tables,
                std::byte* out) {
  const float scale = kind == Fp8RowScale::none ? 1.0F : scale_of(largest_weight(row, groups));
  tables.start(1.0F / scale);
  for (std::int64_t g = 0; g < groups; ++g) {
    const Tables::Table& table = tables.of(row, g);
    std::uint64_t pairs = 0;
    std::memcpy(&pairs, row.codes + g * (group / 2), sizeof pairs);
    for (unsigned i = 0; i < group; ++i) out[g * group + i] = table[pairs >> (4 * i) & 15U];
  }
  return scale;
}

Result<void> check_dims(Dims dims) {
  FEWBIT_TRY(check_extent("n", dims.n));
  return check_extent("k", dims.k);
}

// row(n, tables, codes): fills a row and returns its scale.
template <class Fn>
Result<Fp8Rows> each_row(Dims dims, Fp8RowScale kind, Executor& executor, const Fn& row) {
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(DType::f8_e4m3, {dims.n, dims.k}));
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(DType::f32, {dims.n}));
  parallel_ranges(executor, dims.n, [&](std::int64_t begin, std::int64_t end) {
    Tables tables;
    for (std::int64_t n = begin; n < end; ++n) {
      const float scale = row(n, tables, codes.bytes.data() + n * dims.k);
      std::memcpy(scales.bytes.data() + n * 4, &scale, sizeof scale);
    }
  });
  if (kind == Fp8RowScale::none) return Fp8Rows{.codes = codes.tensor, .scales = {}};
  return Fp8Rows{.codes = codes.tensor, .scales = scales.tensor};
}

}  // namespace

Result<Fp8Rows> bf16_to_fp8_rows(const TensorView& weights, Dims dims, Executor& executor) {
  FEWBIT_TRY(check_dims(dims));
  FEWBIT_TRY(check_tensor("weights", weights, DType::bf16, {dims.n, dims.k}));
  return each_row(dims, Fp8RowScale::per_row, executor,
                  [&](std::int64_t n, Tables& /*tables*/, std::byte* out) {
                    return bf16_row(weights.bytes.data() + n * dims.k * 2, dims.k, out);
                  });
}

Result<Fp8Rows> nvfp4_to_fp8_rows(const Nvfp4Rows& rows, Dims dims, Fp8RowScale scale,
                                  Executor& executor) {
  FEWBIT_TRY(check_dims(dims));
  if (dims.k % group != 0) {
    return Error{
        ErrorCode::invalid_argument,
        std::to_string(dims.k) + ", expected a multiple of the group, " + std::to_string(group),
        "k"};
  }
  const std::int64_t groups = dims.k / group;
  FEWBIT_TRY(check_tensor("codes", rows.codes, DType::u8, {dims.n, dims.k / 2}));
  FEWBIT_TRY(check_tensor("scales", rows.scales, DType::f8_e4m3, {dims.n, groups}));
  return each_row(dims, scale, executor, [&](std::int64_t n, Tables& tables, std::byte* out) {
    return nvfp4_row({.codes = rows.codes.bytes.data() + n * dims.k / 2,
                      .scales = rows.scales.bytes.data() + n * groups,
                      .global_scale = rows.global_scale},
                     groups, scale, tables, out);
  });
}

}  // namespace fewbit
