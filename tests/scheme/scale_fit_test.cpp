// SPDX-License-Identifier: Apache-2.0
#include "scheme/scale_fit.hpp"

#include <gtest/gtest.h>

#include "core/checked.hpp"

namespace fewbit {
namespace {

struct Row {
  ScaledMatrix matrix;
  Shape scale;
  std::optional<Granularity> declared;
  Granularity expected;
};

TEST(ScaleFit, ShapesOfTheFieldAreUnderstood) {
  const Granularity block{128, 128};
  for (const Row& row : {
           Row{{0, 24, 40}, {}, {}, {0, 0}},
           Row{{0, 24, 40}, {1}, {}, {0, 0}},
           Row{{0, 24, 40}, {1, 1}, {}, {0, 0}},
           Row{{0, 24, 40}, {24}, {}, {1, 0}},
           Row{{0, 24, 40}, {24, 1}, {}, {1, 0}},
           Row{{0, 24, 40}, {1, 40}, {}, {0, 1}},
           Row{{0, 24, 40, false, true}, {2}, {}, {12, 0}},
           Row{{0, 300, 200}, {3, 2}, {}, block},
           Row{{0, 300, 200}, {3, 1, 2, 1}, {}, block},
           Row{{0, 300, 200}, {5, 4}, {}, {64, 64}},
           Row{{0, 130, 64}, {2, 1}, {}, {128, 128}},
           Row{{0, 64, 96}, {1, 1}, block, block},
           Row{{0, 24, 96}, {24, 3}, {}, {1, 32}},
           Row{{0, 24, 40}, {24, 2}, {}, {1, 32}},
           Row{{0, 24, 6144}, {24, 2}, {}, {1, 3072}},
           Row{{0, 100, 150}, {2, 4}, Granularity{96, 48}, {96, 48}},
           // The tensors outrank the config.
           Row{{0, 300, 200}, {3, 2}, Granularity{64, 64}, block},
           Row{{0, 300, 200}, {300, 1}, block, {1, 0}},
           Row{{4, 24, 40}, {4}, {}, {0, 0}},
           Row{{4, 24, 40}, {}, {}, {0, 0}},
           Row{{4, 24, 40}, {4, 1, 1}, {}, {0, 0}},
           Row{{4, 24, 40}, {4, 24}, {}, {1, 0}},
           Row{{4, 24, 40}, {4, 40}, {}, {0, 1}},
           Row{{4, 24, 40}, {4, 24, 1}, {}, {1, 0}},
           Row{{4, 300, 200}, {4, 3, 2}, {}, block},
       }) {
    const auto fit = fit_scale(row.matrix, row.scale, row.declared);
    ASSERT_TRUE(fit) << shape_text(row.scale) << " for " << row.matrix.n;
    EXPECT_EQ(fit->granularity.rows, row.expected.rows) << shape_text(row.scale);
    EXPECT_EQ(fit->granularity.cols, row.expected.cols) << shape_text(row.scale);
    EXPECT_EQ(fit->pieces, 1);
    const auto again = fit_scale_as(row.matrix, row.scale, fit->granularity);
    ASSERT_TRUE(again) << shape_text(row.scale);
    EXPECT_EQ(again->rows, fit->rows);
    EXPECT_EQ(again->cols, fit->cols);
  }
}

TEST(ScaleFit, BesideTransposedCodesTheGridIsReadAsTheyAre) {
  struct Turned {
    Shape scale;
    Granularity expected;
    bool transposed;
  };
  const ScaledMatrix matrix{4, 300, 200, true, true};
  for (const Turned& row :
       {Turned{{}, {0, 0}, false}, Turned{{4}, {0, 0}, false}, Turned{{4, 1, 300}, {1, 0}, true},
        Turned{{4, 300, 1}, {1, 0}, false}, Turned{{4, 300}, {1, 0}, false},
        Turned{{4, 2}, {150, 0}, false}, Turned{{4, 2, 3}, {128, 128}, true},
        Turned{{4, 3, 2}, {128, 128}, false}}) {
    const auto fit = fit_scale(matrix, row.scale, {});
    ASSERT_TRUE(fit) << shape_text(row.scale);
    EXPECT_EQ(fit->granularity, row.expected) << shape_text(row.scale);
    EXPECT_EQ(fit->transposed, row.transposed) << shape_text(row.scale);
  }
  EXPECT_FALSE(fit_scale({4, 200, 200, true}, {4, 200, 1}, {}));  // a row or a column?
}

TEST(ScaleFit, OtherShapesAreRefused) {
  for (const auto& [matrix, scale] : std::vector<std::pair<ScaledMatrix, Shape>>{
           {{0, 24, 40}, {23}},
           {{0, 24, 40}, {2}},       // no pair
           {{4, 24, 40}, {4, 2}},    // no pairs
           {{0, 24, 40}, {12, 1}},   // pieces of two rows
           {{0, 256, 384}, {8, 3}},  // pieces of 32 rows
           {{0, 24, 40}, {24, 1, 1}},
           {{0, 24, 40}, {0}},
           {{0, 300, 200}, {2, 2}},  // blocks of 256x128
           {{0, 300, 200}, {3, 3}},
           {{0, 300, 200}, {200, 300}},
           {{4, 24, 40}, {3, 24}},
           {{4, 40, 40}, {4, 40}},  // rows or columns?
           {{0, 40, 40}, {1, 40}},
           {{4, 40, 40}, {4, 1, 40}},
           {{0, 0, 40}, {1}},
       }) {
    EXPECT_FALSE(fit_scale(matrix, scale, {})) << shape_text(scale) << " for " << matrix.n;
  }
}

// 27136 rows in 8 pieces of 3392, each in 27 blocks of 128: 216 rows of scales, not 212.
TEST(ScaleFit, PiecesWithTheirOwnBlocksAreTakenApart) {
  const ScaledMatrix matrix{0, 27136, 6144};
  const auto fit = fit_scale(matrix, {216, 48}, usual_block);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->pieces, 8);
  EXPECT_EQ(fit->granularity, (Granularity{64, 128}));
  for (std::int64_t row = 0; row < matrix.n; row += 32) {
    const std::int64_t stored = row / 3392 * 27 + row % 3392 / 128;
    EXPECT_EQ(stored_scale_row(*fit, matrix.n, row / 64), stored) << row;
  }
  EXPECT_FALSE(fit_scale_as(matrix, {216, 48}, fit->granularity));
  EXPECT_TRUE(fit_scale_as(matrix, {216, 48}, fit->granularity, usual_block));
}

TEST(ScaleFit, AMessageNamesTheShapesThatWouldDo) {
  EXPECT_EQ(scale_shapes_text({0, 300, 200}, {}),
            "one a tensor ([] or [1]), a row ([300]) or a block of 128x128 ([3, 2])");
  EXPECT_EQ(scale_shapes_text({4, 300, 200}, Granularity{64, 64}),
            "one a tensor ([] or [4]), a row ([4, 300]) or a block of 64x64 ([4, 5, 4])");
}

}  // namespace
}  // namespace fewbit
