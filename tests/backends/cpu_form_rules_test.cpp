// SPDX-License-Identifier: Apache-2.0
// What the CPU backends refuse of forms of weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/moe_case.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

using test::LayerSpec;
using test::scaled_scheme;
using test::spec_of;

TEST(CpuFormsRules, ListEveryUnmetNeed) {
  const auto text_of = [](const Scheme& scheme, std::int64_t hidden_size = 64) {
    const LayerSpec spec = spec_of(scheme, hidden_size, 64);
    const auto selection = select_backend(test::problem_of(spec, 1, 1), test::generic_cpu(),
                                          {.backend = "cpu_generic"});
    return selection ? "" : selection.error().what;
  };
  using ::testing::HasSubstr;
  const Scheme int4 = scaled_scheme(DType::u4, DType::f16, {.rows = 1, .cols = 32});
  EXPECT_EQ(text_of(int4), "");
  EXPECT_THAT(text_of(int4, 40), HasSubstr("hidden_size % 16 = 0"));
  const auto ordered = [](Scheme scheme) {
    scheme.act_order = ActOrder::group;
    return scheme;
  };
  EXPECT_THAT(text_of(ordered(int4), 48), HasSubstr("hidden_size % 32 = 0 with act-order"));
  Scheme odd = int4;
  odd.scale->granularity.cols = 24;
  EXPECT_THAT(text_of(odd), HasSubstr("gate and up in groups of a multiple of 16"));
  odd = int4;
  odd.zero_point = 7;
  EXPECT_THAT(text_of(odd), HasSubstr("down with zero point 8, has 7"));
  odd.zero_point = 0;
  odd.packing = Packing::words_row;
  EXPECT_THAT(text_of(odd), HasSubstr("down with zero point 8, has an offset a group"));
  odd = int4;
  odd.scale->dtype = DType::f8_e5m3;
  odd.pre_quant_scale = true;
  EXPECT_THAT(text_of(odd), HasSubstr("e4m3, e8m0, f16, bf16 or f32 scales"));
  EXPECT_THAT(text_of(odd), HasSubstr("pre_quant_scale"));
  odd = int4;
  odd.packing = Packing::shorts_gemv;
  EXPECT_THAT(text_of(odd), HasSubstr("int4, int8 or e4m3 with scales"));
  EXPECT_THAT(text_of(scaled_scheme(DType::nf4, DType::f16, {.rows = 1, .cols = 32})),
              HasSubstr("int4, int8 or e4m3 with scales"));
  const Scheme nf3 = scaled_scheme(DType::nf3, DType::f8_e4m3, {.rows = 1, .cols = 32});
  EXPECT_EQ(text_of(nf3), "");
  EXPECT_EQ(text_of(nf3, 464), "");
  EXPECT_THAT(text_of(nf3, 40), HasSubstr("hidden_size % 16 = 0, has 40"));
  EXPECT_THAT(text_of(ordered(nf3)), HasSubstr("gate and up without act-order"));
  EXPECT_THAT(text_of(scaled_scheme(DType::nf3, DType::f32, {})),
              HasSubstr("down with a scale a row, since nf3 has no code of zero"));
  odd = scaled_scheme(DType::u2, DType::f16, {.rows = 1, .cols = 64});
  EXPECT_EQ(text_of(odd), "");
  odd.zero_point = 2;
  EXPECT_THAT(text_of(odd), HasSubstr("with zero point 1, has 2"));
  EXPECT_THAT(text_of(scaled_scheme(DType::f8_e4m3, DType::f32, {.rows = 24, .cols = 128})),
              HasSubstr("a scale a row, for all rows or for a multiple of 16"));
}

}  // namespace
}  // namespace fewbit
