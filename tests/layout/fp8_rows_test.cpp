// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/float_convert.hpp"
#include "fewbit/layouts.hpp"
#include "layout/element_mover.hpp"
#include "layout/pack_fast_fp8.hpp"
#include "layout/parallel_ranges.hpp"

namespace fewbit {
namespace {

using Bytes = std::vector<std::uint8_t>;

template <class T>
TensorView view_of(DType dtype, Shape shape, const std::vector<T>& values) {
  return {.dtype = dtype,
          .shape = std::move(shape),
          .bytes = std::as_bytes(std::span<const T>(values)),
          .device = {}};
}

Bytes codes_of(const Fp8Rows& rows) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(rows.codes.view.bytes.data());
  return {codes, codes + rows.codes.view.bytes.size()};
}

float scale_of(const Fp8Rows& rows, std::size_t n) {
  float scale = 0.0F;
  std::memcpy(&scale, rows.scales.view.bytes.data() + n * 4, sizeof scale);
  return scale;
}

Result<Fp8Rows> from_bf16(const std::vector<float>& values, Dims dims) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) bits.push_back(f32_to_bf16(value));
  return bf16_to_fp8_rows(view_of(DType::bf16, {dims.n, dims.k}, bits), dims);
}

TEST(Fp8RowsTest, Bf16RowsHaveTheKnownCodes) {
  const auto rows = from_bf16({0.5F, -0.25F, 0.011F}, {.n = 1, .k = 3});
  ASSERT_TRUE(rows);
  EXPECT_NEAR(scale_of(*rows, 0), 0.00111607F, 1e-8F);
  EXPECT_EQ(codes_of(*rows), (Bytes{0x7e, 0xf6, 0x52}));
}

TEST(Fp8RowsTest, ZerosAndNanDoNotSpoilARow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto rows = from_bf16({0.0F, 0.0F, nan, 448.0F}, {.n = 2, .k = 2});
  ASSERT_TRUE(rows);
  EXPECT_EQ(scale_of(*rows, 0), 1.0F);
  EXPECT_EQ(scale_of(*rows, 1), 1.0F);
  const Bytes codes = codes_of(*rows);
  EXPECT_EQ(codes[0] | codes[1], 0);
  EXPECT_TRUE(std::isnan(f8_e4m3_to_f32(codes[2])));
  EXPECT_EQ(codes[3], 0x7e);
}

// A row whose largest is 448, so that its scale is 1.
TEST(Fp8RowsTest, EveryBf16HasTheNearestCode) {
  std::vector<std::uint16_t> bits;
  for (unsigned i = 0; i < 0x10000; ++i) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(i));
    if (std::isnan(value) || std::abs(value) <= 448.0F)
      bits.push_back(static_cast<std::uint16_t>(i));
  }
  const auto k = static_cast<std::int64_t>(bits.size());
  const auto rows = bf16_to_fp8_rows(view_of(DType::bf16, {1, k}, bits), {.n = 1, .k = k});
  ASSERT_TRUE(rows);
  ASSERT_EQ(scale_of(*rows, 0), 1.0F);
  const Bytes codes = codes_of(*rows);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    ASSERT_EQ(codes[i], f32_to_f8_e4m3_sat(bf16_to_f32(bits[i]))) << bits[i];
  }
}

TEST(Fp8RowsTest, WrongSizesAndDtypesAreRefused) {
  const std::vector<std::uint16_t> bits(6);
  const auto short_of = bf16_to_fp8_rows(view_of(DType::bf16, {2, 3}, bits), {.n = 2, .k = 4});
  ASSERT_FALSE(short_of);
  EXPECT_EQ(short_of.error().message(), "weights: shape [2, 3], expected [2, 4]");
  const auto f16 = bf16_to_fp8_rows(view_of(DType::f16, {2, 3}, bits), {.n = 2, .k = 3});
  ASSERT_FALSE(f16);
  EXPECT_EQ(f16.error().message(), "weights: dtype f16, expected bf16");

  const Bytes codes(24);
  const auto nvfp4 = [&](Dims dims, const Shape& scale_shape) {
    const Bytes scales(4);
    return nvfp4_to_fp8_rows({.codes = view_of(DType::u8, {2, dims.k / 2}, codes),
                              .scales = view_of(DType::f8_e4m3, scale_shape, scales)},
                             dims, Fp8RowScale::none);
  };
  EXPECT_EQ(nvfp4({.n = 2, .k = 24}, {2, 1}).error().message(),
            "k: 24, expected a multiple of the group, 16");
  EXPECT_EQ(nvfp4({.n = 2, .k = 32}, {2, 2}).error().message(),
            "codes: holds 24 bytes, expected 32 for shape [2, 16]");
  EXPECT_FALSE(nvfp4({.n = 0, .k = 32}, {2, 2}));
}

std::vector<const Fp8Kernels*> kernels_here() {
  std::vector<const Fp8Kernels*> all;
  const IsaLevel here = packing_isa();
  for (const IsaLevel level : {IsaLevel::avx2, IsaLevel::avx512}) {
    if (here >= level) all.push_back(&fp8_kernels(level));
  }
  return all;
}

// Bytes with one after them that nobody writes, on a line of the caches or beside one.
class Target {
 public:
  Target(std::size_t bytes, std::size_t offset) : bytes_(bytes + offset + 65, 0xee) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    first_ = (64 - address % 64) % 64 + offset;
    count_ = bytes + 1;
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(bytes_.data() + first_); }
  Bytes bytes() const {
    const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(first_);
    return {first, first + static_cast<std::ptrdiff_t>(count_)};
  }

 private:
  Bytes bytes_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

// Any bits of weights, scales and factors, infinities and NaN among them.
TEST(Fp8RowsTest, EveryKernelGivesTheBitsOfThePortableOne) {
  std::mt19937 random(5);
  const Fp8Kernels& plain = fp8_kernels(IsaLevel::generic);
  for (const Fp8Kernels* fast : kernels_here()) {
    for (int round = 0; round < 300; ++round) {
      const auto k = static_cast<std::int64_t>(1 + random() % 400);
      std::vector<std::uint16_t> weights(static_cast<std::size_t>(k));
      for (auto& weight : weights) weight = static_cast<std::uint16_t>(random());
      const auto* row = reinterpret_cast<const std::byte*>(weights.data());
      EXPECT_EQ(fast->largest_bf16(row, k), plain.largest_bf16(row, k));
      const float inverse = std::ldexp(1.0F + static_cast<float>(random() % 1000) / 1000.0F,
                                       static_cast<int>(random() % 60) - 30);
      Target want(weights.size(), random() % 2);
      Target got(weights.size(), random() % 2);
      plain.from_bf16(row, k, inverse, want.data());
      fast->from_bf16(row, k, inverse, got.data());
      ASSERT_EQ(got.bytes(), want.bytes()) << k << " weights times " << inverse;
    }
  }
}

TEST(Fp8RowsTest, EveryKernelGivesTheBitsOfThePortableOneForNvfp4) {
  std::mt19937 random(6);
  const Fp8Kernels& plain = fp8_kernels(IsaLevel::generic);
  std::vector<float> steps(256);
  Fp8Tables tables{};
  for (auto& table : tables) {
    for (auto& code : table) code = static_cast<std::byte>(random());
  }
  for (const Fp8Kernels* fast : kernels_here()) {
    for (int round = 0; round < 300; ++round) {
      const auto count = static_cast<std::int64_t>(1 + random() % 300);
      const float global = std::ldexp(1.0F + static_cast<float>(random() % 1000) / 1000.0F,
                                      static_cast<int>(random() % 280) - 140);
      for (std::size_t s = 0; s < steps.size(); ++s) {
        steps[s] = f8_e4m3_to_f32(static_cast<std::uint8_t>(s)) * global;
      }
      Bytes codes(static_cast<std::size_t>(8 * count));
      Bytes scales(static_cast<std::size_t>(count));
      for (auto& code : codes) code = static_cast<std::uint8_t>(random());
      for (auto& scale : scales) scale = static_cast<std::uint8_t>(random());
      const Nvfp4Groups groups{.codes = reinterpret_cast<const std::byte*>(codes.data()),
                               .scales = reinterpret_cast<const std::byte*>(scales.data()),
                               .steps = steps.data(),
                               .count = count};
      EXPECT_EQ(fast->largest_nvfp4(groups), plain.largest_nvfp4(groups));
      const float inverse = std::ldexp(1.3F, static_cast<int>(random() % 40) - 20);
      Target want(static_cast<std::size_t>(16 * count), random() % 2);
      Target got(static_cast<std::size_t>(16 * count), random() % 2);
      plain.from_nvfp4(groups, inverse, want.data());
      fast->from_nvfp4(groups, inverse, got.data());
      ASSERT_EQ(got.bytes(), want.bytes())
          << count << " groups, global " << global << ", times " << inverse;
      plain.look_up(groups, tables, want.data());
      fast->look_up(groups, tables, got.data());
      ASSERT_EQ(got.bytes(), want.bytes()) << count << " groups";
    }
  }
}

TEST(Fp8RowsTest, MemoryOfTheCallerIsMeasured) {
  const std::vector<std::uint16_t> weights(6);
  Bytes codes(6);
  std::vector<float> scales(1);
  const auto done = bf16_to_fp8_rows(
      view_of(DType::bf16, {2, 3}, weights), {.n = 2, .k = 3},
      Fp8Target{.codes = std::as_writable_bytes(std::span(codes)), .scales = scales});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message(), "result: 6 codes and 1 scales, expected 6 and 2");
}

// Weights around 0.02, the size of most, in three rows.
class Nvfp4RowsTest : public ::testing::Test {
 protected:
  static constexpr Dims dims{.n = 3, .k = 256};

  Nvfp4RowsTest() {
    for (unsigned i = 0; i < 384; ++i)
      codes_.push_back(static_cast<std::uint8_t>(i * 89 + i / 128));
    for (unsigned i = 0; i < 48; ++i) scales_.push_back(static_cast<std::uint8_t>(0x38 + i % 17));
  }
  Result<Fp8Rows> run(Fp8RowScale scale, Executor& executor = serial_executor()) const {
    return nvfp4_to_fp8_rows({.codes = view_of(DType::u8, {3, 128}, codes_),
                              .scales = view_of(DType::f8_e4m3, {3, 16}, scales_),
                              .global_scale = 0x1.3p-8F},
                             dims, scale, executor);
  }
  double weight(std::size_t i) const {
    const unsigned pair = codes_[i / 2];
    const auto code = static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15U : pair >> 4);
    return double{f4_e2m1_to_f32(code)} * double{f8_e4m3_to_f32(scales_[i / 16])} * 0x1.3p-8;
  }
  Bytes codes_;
  Bytes scales_;
};

// e4m3 has steps of 2^-9 below 2^-6, above three bits of mantissa.
TEST_F(Nvfp4RowsTest, WithoutAScaleAreTheNearestCodes) {
  const auto rows = run(Fp8RowScale::none);
  ASSERT_TRUE(rows);
  EXPECT_TRUE(rows->scales.empty());
  const Bytes codes = codes_of(*rows);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const double w = weight(i);
    EXPECT_LE(std::abs(double{f8_e4m3_to_f32(codes[i])} - w),
              std::max(0x1p-10, std::abs(w) * 0x1p-4));
  }
}

TEST_F(Nvfp4RowsTest, WithAScaleAreCloserThanHalfAStepOfThreeMantissaBits) {
  const auto rows = run(Fp8RowScale::per_row);
  ASSERT_TRUE(rows);
  const Bytes codes = codes_of(*rows);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const double scale = double{scale_of(*rows, i / 256)};
    const double w = weight(i);
    // The quotient is rounded before the code: 2^-23 more.
    EXPECT_LE(std::abs(double{f8_e4m3_to_f32(codes[i])} * scale - w),
              std::abs(w) * (0x1p-4 + 0x1p-22))
        << i;
  }
}

TEST_F(Nvfp4RowsTest, ScalesAreTheLargestMagnitudesOf448) {
  const auto rows = run(Fp8RowScale::per_row);
  ASSERT_TRUE(rows);
  for (std::size_t n = 0; n < 3; ++n) {
    double largest = 0.0;
    for (std::size_t k = 0; k < 256; ++k)
      largest = std::max(largest, std::abs(weight(256 * n + k)));
    EXPECT_NEAR(double{scale_of(*rows, n)}, largest / 448.0, largest * 0x1p-30);
  }
}

TEST_F(Nvfp4RowsTest, ThreadsDoNotChangeTheBytes) {
  const auto pool = make_thread_pool(3);
  ASSERT_TRUE(pool);
  const auto one = run(Fp8RowScale::per_row);
  const auto three = run(Fp8RowScale::per_row, **pool);
  ASSERT_TRUE(one && three);
  EXPECT_EQ(codes_of(*one), codes_of(*three));
  for (std::size_t n = 0; n < 3; ++n) EXPECT_EQ(scale_of(*one, n), scale_of(*three, n));
}

TEST(Nvfp4RowsWorked, HasTheKnownCodes) {
  const auto one = [](float value) {
    const Bytes codes(8, 0x22);   // e2m1 code 2 is 1
    const Bytes scales(1, 0x38);  // e4m3 1
    const auto rows = nvfp4_to_fp8_rows({.codes = view_of(DType::u8, {1, 8}, codes),
                                         .scales = view_of(DType::f8_e4m3, {1, 1}, scales),
                                         .global_scale = value},
                                        {.n = 1, .k = 16}, Fp8RowScale::none);
    return codes_of(*rows).front();
  };
  EXPECT_EQ(one(0.00226688F), 0x01);
  EXPECT_EQ(one(0.0218F), 0x0b);
  EXPECT_EQ(one(0.0007F), 0x00);
}

}  // namespace
}  // namespace fewbit
