// SPDX-License-Identifier: Apache-2.0
// Experts laid out for other engines' kernels, element by element against the closed forms of those
// layouts, written out here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/foreign_case.hpp"

namespace fewbit {
namespace {

using namespace test;
using testing::HasSubstr;

// 96 rows of gate and of up, each padded to 128.
TEST(ForeignPack, MarlinHasEveryCodeScaleAndZeroInItsPlace) {
  const Case c = integer_case("awq-int4-g32", 96);
  const auto packed = pack("marlin", c);
  ASSERT_TRUE(packed) << packed.error().message();
  constexpr std::int64_t padded = 128;
  constexpr std::int64_t rows = 2 * padded;
  for (std::int64_t r = 0; r < rows; ++r) {
    const Row row = w13_row(c, r, padded);
    for (std::int64_t k = 0; k < hidden; ++k) {
      const int want = row.matrix != nullptr ? code_at(*row.matrix, row.n, k) : 0;
      ASSERT_EQ(tile_code(*packed, "w13.words", rows, r, k), want) << r << ", " << k;
    }
    for (std::int64_t g = 0; g < hidden / 32; ++g) {
      const float scale = row.matrix != nullptr ? scale_at(*row.matrix, row.n, g) : 0.0F;
      ASSERT_EQ(bf16_to_f32(packed->at<std::uint16_t>("w13.scales", g * rows + grouped(r))), scale);
      // Within eight columns zeros are taken in the order 0, 2, 4, 6, 1, 3, 5, 7.
      const std::int64_t p = grouped(r);
      const std::int64_t slot = p % 2 * 4 + p % 8 / 2;
      const std::int64_t word = g * rows / 8 + p / 8;
      const int zero = row.matrix != nullptr
                           ? std::to_integer<int>(
                                 row.matrix->zero_points.view
                                     .bytes[static_cast<std::size_t>(row.n * (hidden / 32) + g)])
                           : 0;
      ASSERT_EQ(packed->nibble("w13.zeros", word * 4 + slot / 2, slot % 2 == 1), zero);
    }
  }
  for (std::int64_t n = 0; n < hidden; ++n) {
    for (std::int64_t k = 0; k < padded; ++k) {
      const int want = k < 96 ? code_at(c.expert.down, n, k) : 0;
      ASSERT_EQ(tile_code(*packed, "w2.words", hidden, n, k), want);
    }
  }
}

// Codes with a sign are stored 8 higher.
TEST(ForeignPack, SignedCodesGetTheirOffset) {
  Case c = integer_case("ct-int4-g32", 64);
  for (Scheme* scheme : {&c.problem.gate_up, &c.problem.down, &c.expert.gate->scheme,
                         &c.expert.up.scheme, &c.expert.down.scheme}) {
    scheme->weight = DType::i4;
    scheme->zero_point = 0;
  }
  const auto packed = pack("sglang_marlin", c);
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packed->plan.find("w13.zeros"), nullptr);
  EXPECT_EQ(undone("sglang_marlin", c, *packed), "the same");
  for (std::int64_t k = 0; k < hidden; ++k) {
    ASSERT_EQ(tile_code(*packed, "w13.words", 128, 5, k), code_at(*c.expert.gate, 5, k) ^ 8);
  }
  c.expert.up.scheme.zero_point = 1;
  EXPECT_THAT(error_of("marlin", c), HasSubstr("w13: zero point 9 of all codes, expected 8"));
}

// Every buffer: codes, scales, zero points, sums, biases, orders.
TEST(ForeignPack, TakenApartAChangedByteOfAnyBufferIsFound) {
  const struct {
    const char* backend;
    const char* scheme;
    bool biases;
  } rows[] = {{"marlin", "ct-int4-g32-asym", true},
              {"marlin", "ct-int4-channel", false},
              {"sglang_marlin", "gptq-int8-g64", false},
              {"marlin", "gptq-int4-g32-actorder", false},
              {"vllm_cpu_int4", "awq-int4-g64", false},
              {"vllm_cpu_int4", "gptq-int4-g128", false},
              {"xpu_int4", "gptq-int4-g32", false},
              {"flashinfer_trtllm_mxint4", "ct-int4-g32", false}};
  for (const auto& row : rows) {
    SCOPED_TRACE(std::string(row.backend) + " " + row.scheme);
    Case c = integer_case(row.scheme, 256);
    if (row.biases) set_biases(c);
    if (c.problem.down.act_order == ActOrder::group) {
      c.expert.gate->g_idx = act_order(hidden, 32, 3);
      c.expert.up.g_idx = act_order(hidden, 32, 3);
      c.expert.down.g_idx = act_order(256, 32, 5);
    }
    const auto packed = pack(row.backend, c);
    ASSERT_TRUE(packed) << packed.error().message();
    ASSERT_EQ(undone(row.backend, c, *packed), "the same");
    for (std::size_t b = 0; b < packed->plan.buffers.size(); ++b) {
      const std::size_t bytes = packed->shares[b].size();
      for (const std::size_t at : {std::size_t{0}, bytes / 3, bytes - 1}) {
        Packed changed = *packed;
        changed.shares[b][at] ^= std::byte{0x11};
        EXPECT_NE(undone(row.backend, c, changed), "the same")
            << packed->plan.buffers[b].name << " byte " << at;
      }
    }
  }
}

TEST(ForeignPack, ActOrderIsSortedAndMustBeTheSameForGateAndUp) {
  Case c = integer_case("gptq-int4-g32-actorder", 64);
  c.expert.gate->g_idx = act_order(hidden, 32, 3);
  c.expert.up.g_idx = act_order(hidden, 32, 3);
  c.expert.down.g_idx = act_order(64, 32, 1);
  const auto packed = pack("marlin", c);
  ASSERT_TRUE(packed) << packed.error().message();
  for (std::int64_t k = 0; k < hidden; ++k) {
    const auto from = packed->at<std::int32_t>("w13.order", k);
    ASSERT_EQ(packed->at<std::int32_t>("w13.g_idx", k), from * 3 % (hidden / 32));
    ASSERT_EQ(tile_code(*packed, "w13.words", 128, 70, k), code_at(c.expert.up, 6, from));
  }
  EXPECT_EQ(undone("marlin", c, *packed), "the same");
  c.expert.up.g_idx = act_order(hidden, 32, 5);
  EXPECT_THAT(error_of("marlin", c),
              HasSubstr("w13: its parts have different act-orders, and the kernels one for both: "
                        "column 1 is in group 3 of the first and in group 5 of another"));
  c.expert.gate->g_idx = act_order(hidden / 2, 32, 3);
  EXPECT_THAT(error_of("marlin", c),
              HasSubstr("w13: act-order of 512 bytes, expected 1024 for 256 columns"));
}

TEST(ForeignPack, CpuBlocksHoldCodesScalesZerosAndTheirSums) {
  const Case c = integer_case("awq-int4-g64", 64);
  const auto packed = pack("vllm_cpu_int4", c);
  ASSERT_TRUE(packed) << packed.error().message();
  constexpr std::int64_t block_k = 64;
  constexpr std::int64_t block_bytes = 16 * block_k + 128;
  for (std::int64_t r = 0; r < 128; ++r) {
    const Row row = w13_row(c, r, 64);
    const std::int64_t x = r % 32;
    for (std::int64_t b = 0; b < hidden / block_k; ++b) {
      const std::int64_t base = (r / 32 * (hidden / block_k) + b) * block_bytes;
      const int zero = std::to_integer<int>(
          row.matrix->zero_points.view.bytes[static_cast<std::size_t>(row.n * 4 + b)]);
      std::int32_t sum = 0;
      for (std::int64_t i = 0; i < block_k; ++i) {
        const std::int64_t byte = base + 64 * (i / 4) + 4 * (8 * (x / 16) + x % 8) + i % 4;
        const int code = code_at(*row.matrix, row.n, b * block_k + i);
        ASSERT_EQ(packed->nibble("w13.blocks", byte, x / 8 % 2 == 1), code);
        sum += code - zero;
      }
      ASSERT_EQ(packed->at<std::int32_t>("w13.blocks", (base + 16 * block_k) / 4 + x), sum);
      const std::int64_t place = (r / 32 * 4 + b) * 32 + x;
      ASSERT_EQ(packed->at<float>("w13.scales", place), scale_at(*row.matrix, row.n, b));
      ASSERT_EQ(packed->at<std::int8_t>("w13.zeros", place), zero);
    }
  }
}

TEST(ForeignPack, XpuKeepsRows) {
  Case c = integer_case("gptq-int4-g128", 128);
  c.problem.biases = true;
  c.expert.gate_bias.assign(128, 0.5F);
  c.expert.up_bias.assign(128, -2.0F);
  c.expert.down_bias.assign(hidden, 3.0F);
  const auto packed = pack("xpu_int4", c);
  ASSERT_TRUE(packed) << packed.error().message();
  for (std::int64_t k = 0; k < hidden; ++k) {
    ASSERT_EQ(packed->nibble("w13.codes", (200 * hidden + k) / 2, k % 2 == 1),
              code_at(c.expert.up, 72, k));
  }
  EXPECT_EQ(bf16_to_f32(packed->at<std::uint16_t>("w13.scales", 401)),
            scale_at(c.expert.up, 72, 1));
  EXPECT_EQ(bf16_to_f32(packed->at<std::uint16_t>("w13.bias", 0)), 0.5F);
  EXPECT_EQ(bf16_to_f32(packed->at<std::uint16_t>("w13.bias", 128)), -2.0F);
  EXPECT_EQ(bf16_to_f32(packed->at<std::uint16_t>("w2.bias", 255)), 3.0F);
  EXPECT_THAT(error_of("xpu_int4", integer_case("awq-int4-g128", 128)),
              HasSubstr("stored zero points, which XPU kernels have no place for"));
}

// Row of the stored matrix that comes to row p: groups of 32 by lanes, then gate and up in turn.
std::int64_t trtllm_row(std::int64_t p) { return p / 32 * 32 + 4 * (p % 8) + p % 32 / 8; }
std::int64_t swizzled(std::int64_t r, std::int64_t col, std::int64_t cols) {
  return (r / 128 * ((cols + 3) / 4) + col / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + col % 4;
}

// vLLM gives the kernels up before gate.
Row trtllm_w13(const Case& c, std::int64_t p, std::int64_t padded) {
  const std::int64_t s = trtllm_row(p);
  const std::int64_t n = s / 2;
  if (n >= c.problem.intermediate_size || n >= padded) return {};
  return {s % 2 == 0 ? &c.expert.up : &*c.expert.gate, n};
}

TEST(ForeignPack, TrtllmNvfp4RowsAndScalesArePaddedShuffledAndSwizzled) {
  const Case c = nvfp4_case(48, 0.25F);
  const auto packed = pack("flashinfer_trtllm_nvfp4", c);
  ASSERT_TRUE(packed) << packed.error().message();
  for (std::int64_t p = 0; p < 128; ++p) {
    const Row row = trtllm_w13(c, p, 64);
    for (std::int64_t k = 0; k < hidden; ++k) {
      const int want = row.matrix != nullptr ? code_at(*row.matrix, row.n, k) : 0;
      ASSERT_EQ(packed->nibble("w13.codes", (p * hidden + k) / 2, k % 2 == 1), want) << p;
    }
    for (std::int64_t g = 0; g < hidden / 16; ++g) {
      const float scale = row.matrix != nullptr ? scale_at(*row.matrix, row.n, g) : 0.0F;
      ASSERT_EQ(f8_e4m3_to_f32(packed->at<std::uint8_t>("w13.scales", swizzled(p, g, hidden / 16))),
                scale);
    }
  }
  EXPECT_EQ(packed->at<float>("global_scales", 0), 0.25F);
  EXPECT_EQ(packed->at<float>("global_scales", 1), 0.75F);
}

// Block scales take up the difference where all of them can, for whatever kernels have one for
// both.
TEST(ForeignPack, GateAndUpWithTwoGlobalScalesKeepEveryValue) {
  const Case c = nvfp4_case(48, 0.5F);  // up has 0.25
  const auto packed = pack("flashinfer_trtllm_nvfp4", c);
  ASSERT_TRUE(packed) << packed.error().message();
  const float global = packed->at<float>("global_scales", 0);
  for (std::int64_t p = 0; p < 128; ++p) {
    const Row row = trtllm_w13(c, p, 64);
    for (std::int64_t g = 0; g < hidden / 16; ++g) {
      const float scale =
          f8_e4m3_to_f32(packed->at<std::uint8_t>("w13.scales", swizzled(p, g, hidden / 16)));
      const float want =
          row.matrix != nullptr ? scale_at(*row.matrix, row.n, g) * row.matrix->global_scale : 0.0F;
      ASSERT_EQ(scale * global, want) << p << ", " << g;
    }
  }
  EXPECT_EQ(error_of("marlin", c), "no error");
  for (const char* backend : {"flashinfer_trtllm_nvfp4", "marlin", "flashinfer_b12x"}) {
    EXPECT_THAT(error_of(backend, nvfp4_case(64, 0.3F)),
                HasSubstr("w13: gate and up have different global scales, 0.3 and 0.25"));
    // Asked of the problem, before anything is packed.
    Case counted = nvfp4_case(64, 0.5F);
    counted.problem.two_scale_experts = 2;
    const std::string why = find_backend(backend)->why_unprepared(counted.problem);
    EXPECT_THAT(why, HasSubstr("gate and up of 2 experts have two global scales"));
    EXPECT_THAT(error_of(backend, counted), HasSubstr(why));
  }
}

// What explain says of a row is what planning does.
TEST(ForeignPack, EveryRowSaysWhetherItCanBePrepared) {
  const Case cases[] = {integer_case("gptq-int4-g128", 256),
                        integer_case("awq-int4-g32", 256),
                        integer_case("ct-int4-g32", 256),
                        nvfp4_case(64, 0.25F),
                        float_case("nvfp4", 64),
                        float_case("mxfp4", 128),
                        float_case("mxfp4-a8", 128),
                        float_case("mxfp8", 128),
                        float_case("fp8-block", 128),
                        float_case("fp8-tensor", 128),
                        float_case("bf16", 128)};
  int preparable = 0;
  for (const Backend* backend : foreign_backends()) {
    for (const Case& c : cases) {
      const std::string why = backend->why_unprepared(c.problem);
      const auto plan = backend->plan_moe(c.problem, c.expert);
      EXPECT_EQ(why, plan ? "" : plan.error().what) << backend->name;
      if (plan) ++preparable;
    }
  }
  EXPECT_GT(preparable, 30);
}

TEST(ForeignPack, Mxint4HasBlocksOf256ColumnsInTwosComplement) {
  const Case c = integer_case("ct-int4-g32", 256);
  const auto packed = pack("flashinfer_trtllm_mxint4", c);
  ASSERT_TRUE(packed) << packed.error().message();
  for (std::int64_t p = 0; p < 512; ++p) {
    const Row row = trtllm_w13(c, p, 256);
    for (std::int64_t k = 0; k < hidden; ++k) {
      const std::int64_t byte = (k / 256 * 512 + p) * 128 + k % 256 / 2;
      ASSERT_EQ(packed->nibble("w13.codes", byte, k % 2 == 1), code_at(*row.matrix, row.n, k) ^ 8);
    }
    for (std::int64_t g = 0; g < hidden / 32; ++g) {
      const auto bits = packed->at<std::uint16_t>("w13.scales", swizzled(p, g, hidden / 32));
      ASSERT_EQ(bf16_to_f32(bits), scale_at(*row.matrix, row.n, g));
    }
  }
}

// NVFP4 with e4m3 scales from one byte to another, both among those of each matrix.
Case scaled_case(DType activations, std::uint8_t smallest, std::uint8_t largest) {
  Case c = nvfp4_case(48, 0.25F);
  c.problem.activation_dtype = activations;
  std::mt19937 random(3);
  for (QuantizedTensor* matrix : {&*c.expert.gate, &c.expert.up, &c.expert.down}) {
    auto bytes = random_bytes(matrix->n * matrix->k / 16, random);
    for (auto& byte : bytes) {
      byte = static_cast<std::uint8_t>(smallest + byte % (largest - smallest + 1));
    }
    bytes.front() = smallest;
    bytes.back() = largest;
    matrix->scales = owned(DType::f8_e4m3, {matrix->n, matrix->k / 16}, bytes);
  }
  return c;
}

// What the kernels make of scale bytes and of the global scale is what the source has, exactly.
void check_nvfp4(const Case& c) {
  const auto packed = pack("marlin", c);
  ASSERT_TRUE(packed) << packed.error().message();
  constexpr std::int64_t padded = 64;
  const int bias = c.problem.activation_dtype == DType::bf16 ? 126 : 14;
  const double global = std::ldexp(double{packed->at<float>("global_scales", 0)}, -bias);
  for (std::int64_t r = 0; r < 2 * padded; ++r) {
    const Row row = w13_row(c, r, padded);
    for (std::int64_t k = 0; k < hidden; ++k) {
      const int want = row.matrix != nullptr ? code_at(*row.matrix, row.n, k) : 0;
      ASSERT_EQ(tile_code(*packed, "w13.words", 2 * padded, r, k), want);
    }
    // The grouped order, with bytes 1 and 2 of each four exchanged.
    const std::int64_t p = grouped(r);
    const std::int64_t place = p / 4 * 4 + (p % 4 == 1 ? 2 : p % 4 == 2 ? 1 : p % 4);
    for (std::int64_t g = 0; g < hidden / 16; ++g) {
      const int byte = packed->at<std::uint8_t>("w13.scales", g * 2 * padded + place);
      const double value = byte == 0 ? 0 : std::ldexp(1.0 + (byte & 7) / 8.0, (byte >> 3) - 15);
      // The largest product of a code and its scale is a number of the kernels' f16.
      ASSERT_LT(value * 6 * std::ldexp(1.0, -14), 65504.0);
      const double want =
          row.matrix != nullptr ? double{scale_at(*row.matrix, row.n, g)} * 0.25 : 0.0;
      ASSERT_EQ(value * global, want) << r << ", " << g;
    }
  }
  EXPECT_EQ(undone("marlin", c, *packed), "the same");
}

// Scales are bytes of 5 exponent and 3 mantissa bits; with the global scale they mean the same.
TEST(ForeignPack, MarlinNvfp4LosesNothing) {
  check_nvfp4(nvfp4_case(48, 0.25F));
  EXPECT_EQ(error_of("flashinfer_b12x", nvfp4_case(64, 0.25F)), "no error");
  for (const DType activations : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(dtype_name(activations));
    // From 2^-9, the smallest that e4m3 has, to 2^-8, 1, 56 and 448; experts of one layer, each
    // with a factor of its own.
    for (const std::uint8_t largest : std::initializer_list<std::uint8_t>{0x02, 0x38, 0x66}) {
      SCOPED_TRACE(largest);
      check_nvfp4(scaled_case(activations, 0x01, largest));
    }
    check_nvfp4(scaled_case(activations, 0x08, 0x6e));
    check_nvfp4(scaled_case(activations, 0x20, 0x7e));
    // 2^-9 beside 60 has no byte.
    EXPECT_THAT(
        error_of("marlin", scaled_case(activations, 0x01, 0x67)),
        AllOf(HasSubstr("of w13 would be lost"), HasSubstr("too small beside the largest")));
  }
}

TEST(ForeignPack, WhatHasNoLayoutIsRefused) {
  const Case c = integer_case("gptq-int4-g128", 128);
  EXPECT_THAT(error_of("humming", c), HasSubstr("is not public"));
  EXPECT_THAT(error_of("flashinfer_trtllm_nvfp4", c), HasSubstr("expected NVFP4"));
  EXPECT_THAT(error_of("vllm_cpu_int4", nvfp4_case(48, 0.25F)),
              HasSubstr("expected 4-bit integers"));
  Case plain = c;
  plain.problem.gate_up = plain_scheme(DType::bf16);
  EXPECT_THAT(error_of("marlin", plain),
              HasSubstr("expected 4 or 8-bit integers, NVFP4, MXFP4 or FP8"));
}

}  // namespace
}  // namespace fewbit
