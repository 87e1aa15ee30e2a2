// SPDX-License-Identifier: Apache-2.0
// The plain layouts and those of our own and of W4A16 kernels.
#include <gtest/gtest.h>

#include "layout/b12x_packed.hpp"
#include "layout/column_major.hpp"
#include "layout/cpu_lane16.hpp"
#include "layout/layout_properties.hpp"
#include "layout/nf3_packed.hpp"
#include "layout/row_major.hpp"
#include "layout/scale_grid.hpp"
#include "layout/swizzle_128x4.hpp"

namespace fewbit {
namespace {

using PlainLayouts =
    ::testing::Types<RowMajor<4>, RowMajor<8>, RowMajor<16>, ColumnMajor<8>, ColumnMajor<16>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Plain, LayoutTest, PlainLayouts);

using W4a16Layouts = ::testing::Types<B12xPacked, GroupedByteScales, SingleByteScales,
                                      Swizzle128x4<8>, Swizzle128x4<16>, Nf3LowPlane<64>,
                                      Nf3HighPlane<64>, Nf3LowPlane<128>, Nf3HighPlane<128>>;
INSTANTIATE_TYPED_TEST_SUITE_P(W4a16, LayoutTest, W4a16Layouts);

using CpuLayouts = ::testing::Types<CpuF4Lane16, CpuByteLane16, CpuPairLane16, CpuTripleLane16,
                                    CpuLane16Groups<8>, CpuLane16Groups<16>, CpuLane16Groups<32>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, LayoutTest, CpuLayouts);

// A closed form is usable at compile time, so kernels can't disagree with it.
static_assert(B12xPacked::place({.n = 128, .k = 32}, 90, 25) == Place{.byte = 1671, .bit = 4});
static_assert(Swizzle128x4<8>::place({.n = 256, .k = 7}, 173, 6) == Place{.byte = 1750, .bit = 0});

}  // namespace
}  // namespace fewbit
