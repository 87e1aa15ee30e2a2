// SPDX-License-Identifier: Apache-2.0
// Experts of floats with few bits for other engines' kernels: the same bytes as the layout
// functions give, which golden vectors are held against, for rows stacked and padded here; rows and
// swizzled scales by their closed forms; and everything taken apart again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/foreign_case.hpp"
#include "fewbit/layouts.hpp"
#include "layout/prepare_marlin_float.hpp"
#include "layout/prepare_trtllm.hpp"

namespace fewbit {
namespace {

using namespace test;
using testing::HasSubstr;

// Matrices one upon the other, each part with zeros behind its rows and columns.
struct Stacked {
  Dims dims;
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
};
Stacked stack(const std::vector<const QuantizedTensor*>& parts, Dims padded, std::int64_t group) {
  Stacked out;
  out.dims = {.n = padded.n * std::ssize(parts), .k = padded.k};
  const auto append = [&](std::vector<std::byte>& to, std::span<const std::byte> from,
                          std::int64_t rows, std::int64_t row_bytes) {
    const auto bytes = static_cast<std::size_t>(row_bytes);
    const std::size_t own = from.size() / static_cast<std::size_t>(rows);
    for (std::int64_t n = 0; n < padded.n; ++n) {
      const std::size_t begin = to.size();
      to.resize(begin + bytes);
      if (n >= rows) continue;
      std::ranges::copy(from.subspan(static_cast<std::size_t>(n) * own, own),
                        to.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  };
  for (const QuantizedTensor* part : parts) {
    append(out.codes, part->codes.view.bytes, part->n, padded.k / 2);
    append(out.scales, part->scales.view.bytes, part->n, padded.k / group);
  }
  return out;
}
Stacked w13(const Case& c, Dims padded, std::int64_t group) {
  return stack({&*c.expert.gate, &c.expert.up}, padded, group);
}
Stacked w31(const Case& c, Dims padded, std::int64_t group) {
  return stack({&c.expert.up, &*c.expert.gate}, padded, group);
}
Stacked w2(const Case& c, Dims padded, std::int64_t group) {
  return stack({&c.expert.down}, padded, group);
}

TensorView view(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .device = {}};
}
TensorView codes(const Stacked& s) { return view(DType::u8, {1, s.dims.n, s.dims.k / 2}, s.codes); }
TensorView mx_scales(const Stacked& s) {
  return view(DType::f8_e8m0, {1, s.dims.n, s.dims.k / 32}, s.scales);
}

void expect_bytes(const Packed& packed, const char* name, const Tensor& want) {
  const auto has = packed.bytes(name);
  ASSERT_EQ(has.size(), want.view.bytes.size()) << name;
  EXPECT_TRUE(std::ranges::equal(has, want.view.bytes)) << name;
}

std::vector<std::byte> bf16_bias(std::initializer_list<const std::vector<float>*> parts,
                                 std::int64_t padded) {
  std::vector<std::byte> bytes;
  for (const auto* part : parts) {
    for (std::int64_t i = 0; i < padded; ++i) {
      const bool real = i < std::ssize(*part);
      const std::uint16_t bits = real ? f32_to_bf16((*part)[static_cast<std::size_t>(i)]) : 0;
      bytes.push_back(static_cast<std::byte>(bits & 0xFFU));
      bytes.push_back(static_cast<std::byte>(bits >> 8U));
    }
  }
  return bytes;
}

// vLLM pads hidden_size to 256 and intermediate_size to 128, SGLang pads nothing.
TEST(ForeignFloat, MarlinMxfp4IsWhatTheLayoutFunctionGives) {
  for (const char* backend : {"marlin", "batched_marlin", "sglang_marlin"}) {
    const bool pads = std::string_view(backend) != "sglang_marlin";
    Case c = float_case("mxfp4", pads ? 96 : 192, pads ? 320 : 256);
    set_biases(c);
    const auto packed = pack(backend, c);
    ASSERT_TRUE(packed) << packed.error().message();
    const std::int64_t inner = pads ? 128 : 192;
    const std::int64_t columns = pads ? 512 : 256;
    const Stacked in = w13(c, {.n = inner, .k = columns}, 32);
    const Stacked out = w2(c, {.n = columns, .k = inner}, 32);
    const auto in_bias = bf16_bias({&c.expert.gate_bias, &c.expert.up_bias}, inner);
    const auto out_bias = bf16_bias({&c.expert.down_bias}, columns);
    const auto want13 = prepare_marlin_mxfp4({.codes = codes(in),
                                              .scales = mx_scales(in),
                                              .bias = view(DType::bf16, {1, 2 * inner}, in_bias)},
                                             in.dims, MarlinActivation::bits16, MarlinRules::exact);
    const auto want2 = prepare_marlin_mxfp4({.codes = codes(out),
                                             .scales = mx_scales(out),
                                             .bias = view(DType::bf16, {1, columns}, out_bias)},
                                            out.dims, MarlinActivation::bits16, MarlinRules::exact);
    ASSERT_TRUE(want13 && want2);
    expect_bytes(*packed, "w13.words", want13->words);
    expect_bytes(*packed, "w13.scales", want13->scales);
    expect_bytes(*packed, "w13.bias", want13->bias);
    expect_bytes(*packed, "w2.words", want2->words);
    expect_bytes(*packed, "w2.scales", want2->scales);
    expect_bytes(*packed, "w2.bias", want2->bias);
    EXPECT_EQ(undone(backend, c, *packed), "the same");
  }
}

// Scales of gate and up each for itself: one a tensor becomes one a row.
TEST(ForeignFloat, MarlinFp8IsWhatTheLayoutFunctionGives) {
  for (const char* scheme : {"fp8-tensor", "fp8-channel", "fp8-block"}) {
    const Case c = float_case(scheme, 128);
    const auto packed = pack("marlin", c);
    ASSERT_TRUE(packed) << packed.error().message();
    std::vector<std::byte> rows(c.expert.gate->codes.view.bytes.begin(),
                                c.expert.gate->codes.view.bytes.end());
    rows.insert(rows.end(), c.expert.up.codes.view.bytes.begin(),
                c.expert.up.codes.view.bytes.end());
    std::vector<std::byte> scales;
    for (const QuantizedTensor* part : {&*c.expert.gate, &c.expert.up}) {
      const auto of = part->scales.view.bytes;
      const bool tensor = c.problem.gate_up.scale->granularity.rows == 0;
      for (std::int64_t i = 0; i < (tensor ? 128 : 1); ++i) {
        scales.insert(scales.end(), of.begin(), of.end());
      }
    }
    const bool blocks = std::string_view(scheme) == "fp8-block";
    const Shape shape = blocks ? Shape{1, 2, 2} : Shape{1, 256};
    const auto want = prepare_marlin_fp8({.codes = view(DType::f8_e4m3, {1, 256, 256}, rows),
                                          .scales = view(DType::f32, shape, scales),
                                          .bias = std::nullopt},
                                         {.n = 256, .k = 256}, DType::bf16);
    ASSERT_TRUE(want) << want.error().message();
    expect_bytes(*packed, "w13.words", want->words);
    expect_bytes(*packed, "w13.scales", want->scales);
    EXPECT_EQ(packed->plan.find("w2.scales")->scale_format, "bf16 * 2^120");
    EXPECT_EQ(undone("marlin", c, *packed), "the same");
  }
}

TEST(ForeignFloat, TrtllmMxfp4IsWhatTheLayoutFunctionGives) {
  for (const char* backend : {"flashinfer_trtllm_mxfp4", "trtllm_fp4"}) {
    const bool pads = std::string_view(backend) != "trtllm_fp4";
    Case c = float_case("mxfp4", pads ? 96 : 128, pads ? 320 : 256);
    set_biases(c);
    const auto packed = pack(backend, c);
    ASSERT_TRUE(packed) << packed.error().message();
    const std::int64_t columns = pads ? 512 : 256;
    const Stacked in = w31(c, {.n = 128, .k = columns}, 32);
    const Stacked out = w2(c, {.n = columns, .k = 128}, 32);
    TrtllmFp4Input input;
    input.hidden_size = columns;
    input.intermediate_size = 128;
    input.group = 32;
    input.gemm1 = {.codes = codes(in), .scales = mx_scales(in)};
    input.gemm2 = {.codes = codes(out), .scales = mx_scales(out)};
    const auto want = prepare_trtllm_fp4(input);
    ASSERT_TRUE(want) << want.error().message();
    expect_bytes(*packed, "w13.codes", want->gemm1.codes);
    expect_bytes(*packed, "w13.scales", want->gemm1.scales);
    expect_bytes(*packed, "w2.codes", want->gemm2.codes);
    expect_bytes(*packed, "w2.scales", want->gemm2.scales);
    EXPECT_EQ(packed->plan.find("global_scales"), nullptr);
    // Row p of w13 is up (even) or gate (odd) of the row that the shuffle brings there.
    for (std::int64_t p = 0; p < 256; ++p) {
      const std::int64_t s = p / 32 * 32 + 4 * (p % 8) + p % 32 / 8;
      const auto& bias = s % 2 == 0 ? c.expert.up_bias : c.expert.gate_bias;
      const auto n = static_cast<std::size_t>(s / 2);
      ASSERT_EQ(packed->at<float>("w13.bias", p), n < bias.size() ? bias[n] : 0.0F) << p;
    }
    EXPECT_EQ(undone(backend, c, *packed), "the same");
  }
}

TEST(ForeignFloat, B12xMxfp4IsWhatTheLayoutFunctionGives) {
  const Case c = float_case("mxfp4", 192);
  const auto packed = pack("b12x", c);
  ASSERT_TRUE(packed) << packed.error().message();
  const Stacked in = w13(c, {.n = 192, .k = 256}, 32);
  const Stacked out = w2(c, {.n = 256, .k = 192}, 32);
  const float one = 1.0F;
  const auto matrix = [&](const Stacked& s) {
    return W4a16Matrix{.codes = codes(s),
                       .block_scales = mx_scales(s),
                       .global_scales = view(DType::f32, {1}, std::as_bytes(std::span(&one, 1)))};
  };
  W4a16Input input;
  input.source = W4a16Source::fp4_e8m0_k32;
  input.block_scale_storage = BlockScaleStorage::plain;
  input.hidden_size = 256;
  input.intermediate_size = 192;
  input.w13_order = W13Order::gate_up;
  input.w13 = matrix(in);
  input.w2 = matrix(out);
  std::vector<std::byte> words13(384 * 128), scales13(384 * 8), words2(256 * 96), scales2(256 * 6);
  float globals[2] = {};
  const auto report = prepare_w4a16(
      input,
      {.w13 = {.tiles = words13, .scales = scales13, .global_scales = std::span(globals, 1)},
       .w2 = {.tiles = words2, .scales = scales2, .global_scales = std::span(globals + 1, 1)}},
      IsaLevel::generic, serial_executor());
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(std::ranges::equal(packed->bytes("w13.words"), words13));
  EXPECT_TRUE(std::ranges::equal(packed->bytes("w13.scales"), scales13));
  EXPECT_TRUE(std::ranges::equal(packed->bytes("w2.words"), words2));
  EXPECT_TRUE(std::ranges::equal(packed->bytes("w2.scales"), scales2));
  EXPECT_EQ(packed->at<float>("global_scales", 0), globals[0]);
  EXPECT_EQ(undone("b12x", c, *packed), "the same");
}

TEST(ForeignFloat, ScalesAboveB12xsLargestAreCounted) {
  Case c = float_case("mxfp4", 128);
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(128 * hidden / 32), 120);
  scales[7] = 248;
  c.expert.up.scales = owned(DType::f8_e8m0, {128, hidden / 32}, scales);
  EXPECT_THAT(error_of("b12x", c), HasSubstr("1 of 2048 scales of w13 would be lost: 0 NaN, 0 "
                                             "negative, 0 too small beside the largest, 1 above"));
  // The other kernels have room for it.
  EXPECT_EQ(error_of("marlin", c), "no error");
}

std::int64_t swizzled(std::int64_t r, std::int64_t col, std::int64_t cols) {
  return (r / 128 * ((cols + 3) / 4) + col / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + col % 4;
}

// Rows as they are, up first where the engine turns the halves; scales in tiles of 128 x 4.
TEST(ForeignFloat, GroupedProductsReadRowsAndSwizzledScales) {
  const struct {
    const char* backend;
    const char* scheme;
    bool up_first;
  } rows[] = {{"flashinfer_cutlass", "nvfp4", true}, {"flashinfer_cutlass", "mxfp4-a8", true},
              {"vllm_cutlass_fp4", "nvfp4", false},  {"flashinfer_cutedsl_batched", "nvfp4", false},
              {"flashinfer_b12x", "nvfp4", true},    {"b12x", "nvfp4", true}};
  for (const auto& row : rows) {
    SCOPED_TRACE(std::string(row.backend) + " " + row.scheme);
    const Case c = float_case(row.scheme, 64);
    const auto packed = pack(row.backend, c);
    ASSERT_TRUE(packed) << packed.error().message();
    const std::int64_t group = c.problem.gate_up.scale->granularity.cols;
    const std::int64_t padded = group == 32 ? 128 : 64;
    const Stacked in = row.up_first ? w31(c, {.n = padded, .k = hidden}, group)
                                    : w13(c, {.n = padded, .k = hidden}, group);
    EXPECT_TRUE(std::ranges::equal(packed->bytes("w13.codes"), in.codes));
    const std::int64_t groups = hidden / group;
    for (std::int64_t r = 0; r < in.dims.n; ++r) {
      for (std::int64_t g = 0; g < groups; ++g) {
        ASSERT_EQ(packed->at<std::byte>("w13.scales", swizzled(r, g, groups)),
                  in.scales[static_cast<std::size_t>(r * groups + g)]);
      }
    }
    const Stacked out = w2(c, {.n = hidden, .k = padded}, group);
    EXPECT_TRUE(std::ranges::equal(packed->bytes("w2.codes"), out.codes));
    // 4 groups of 16 or of 32 fill the four columns of a tile.
    EXPECT_EQ(packed->bytes("w2.scales").size(), 256U * 4);
    if (group == 16) {
      EXPECT_EQ(packed->at<float>("global_scales", 0), 0.25F);
    }
    EXPECT_EQ(undone(row.backend, c, *packed), "the same");
  }
}

// Without a gate rows are added until blocks of 128 are whole, and columns of w2 with them.
TEST(ForeignFloat, GroupedProductsWithoutAGateArePadded) {
  Case c = float_case("nvfp4", 48);
  c.expert.gate.reset();
  c.problem.activation = {.kind = Activation::relu2};
  const auto packed = pack("flashinfer_cutlass", c);
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packed->plan.find("w13.codes")->shape, (Shape{128, hidden / 2}));
  EXPECT_EQ(packed->plan.find("w2.codes")->shape, (Shape{hidden, 64}));
  EXPECT_EQ(undone("flashinfer_cutlass", c, *packed), "the same");
}

TEST(ForeignFloat, SixteenBitRowsComeUpFirst) {
  for (const char* backend : {"flashinfer_cutlass", "cutlass"}) {
    const Case c = float_case("bf16", 48);
    const auto packed = pack(backend, c);
    ASSERT_TRUE(packed) << packed.error().message();
    const auto bytes = packed->bytes("w13.codes");
    const std::size_t half = bytes.size() / 2;
    EXPECT_TRUE(std::ranges::equal(bytes.first(half), c.expert.up.codes.view.bytes));
    EXPECT_TRUE(std::ranges::equal(bytes.last(half), c.expert.gate->codes.view.bytes));
    EXPECT_EQ(undone(backend, c, *packed), "the same");
  }
}

// Every byte that holds a code or a scale is seen.
TEST(ForeignFloat, TakenApartAChangedByteIsFound) {
  const struct {
    const char* backend;
    const char* scheme;
  } rows[] = {{"marlin", "nvfp4"},
              {"marlin", "mxfp4"},
              {"marlin", "fp8-channel"},
              {"flashinfer_trtllm_mxfp4", "mxfp4"},
              {"flashinfer_trtllm_nvfp4", "nvfp4"},
              {"flashinfer_cutlass", "nvfp4"},
              {"b12x", "mxfp4"},
              {"b12x", "nvfp4-w4a16"}};
  for (const auto& row : rows) {
    SCOPED_TRACE(std::string(row.backend) + " " + row.scheme);
    const Case c = float_case(row.scheme, 128);
    const auto packed = pack(row.backend, c);
    ASSERT_TRUE(packed) << packed.error().message();
    ASSERT_EQ(undone(row.backend, c, *packed), "the same");
    for (std::size_t b = 0; b < packed->plan.buffers.size(); ++b) {
      const std::string& name = packed->plan.buffers[b].name;
      // Multiplied and rounded scales are made again instead; global scales of `marlin` and `b12x`
      // show in what block scales mean.
      const bool multiplied = packed->plan.buffers[b].scale_format.find('*') != std::string::npos;
      const bool shown = name == "global_scales" && packed->plan.find("w13.words") != nullptr;
      if (multiplied || shown) continue;
      Packed changed = *packed;
      changed.shares[b][changed.shares[b].size() / 3] ^= std::byte{0x21};
      EXPECT_THAT(undone(row.backend, c, changed), HasSubstr(name)) << name;
    }
  }
}

TEST(ForeignFloat, WhatNoSourceDescribesIsSaidSo) {
  const struct {
    const char* backend;
    const char* scheme;
  } rows[] = {{"marlin", "mxfp8"},
              {"flashinfer_cutlass", "fp8-tensor"},
              {"flashinfer_cutlass", "fp8-block"},
              {"flashinfer_cutlass", "mxfp4"},
              {"flashinfer_cutedsl", "nvfp4"},
              {"cutedsl_nvfp4", "nvfp4"},
              {"cutlass", "mxfp4"},
              {"vllm_cpu_mxfp4", "mxfp4"}};
  for (const auto& row : rows) {
    MoeProblem problem;
    problem.hidden_size = 256;
    problem.intermediate_size = 256;
    problem.num_experts = 8;
    problem.gate_up = scheme_from_name(row.scheme).value();
    problem.down = problem.gate_up;
    EXPECT_THAT(find_backend(row.backend)->why_unprepared(problem),
                HasSubstr("in none of the sources"))
        << row.backend << " " << row.scheme;
  }
  Case c = float_case("mxfp4", 128);
  c.expert.up.global_scale = 0.5F;
  EXPECT_THAT(error_of("marlin", c), HasSubstr("w13: a global scale of 0.5 beside power-of-two"));
  EXPECT_THAT(error_of("flashinfer_b12x", float_case("nvfp4-w4a16", 48)),
              HasSubstr("a matrix of 96 rows and 256 columns, expected multiples of 64 and 16"));
}

}  // namespace
}  // namespace fewbit
