// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backends/cuda_moe/grouped_plan.hpp"
#include "layout/cuda_f4_cells.hpp"
#include "layout/cuda_f8_cells.hpp"

namespace fewbit::cuda {
namespace {

constexpr StreamCard h200 = {.sm_count = 132, .shared_memory_bytes = 232448};
constexpr StreamCard rtx5090 = {.sm_count = 170, .shared_memory_bytes = 101376};

const std::vector<StreamShape> layers = {{1, 8, 128, 2048, 768},  {1, 4, 128, 2880, 2880},
                                         {1, 8, 128, 4096, 1408}, {1, 8, 256, 7168, 2048},
                                         {1, 4, 16, 256, 128},    {1, 2, 8, 4096, 6144},
                                         {1, 1, 1, 16, 16},       {1, 32, 512, 2048, 512}};

CellFormat int4_cells(int scale_cells, bool zeros) {
  return {.kind = CellKind::int4, .ints = {.scale_cells = scale_cells, .zeros = zeros}};
}
CellFormat int8_cells(int scale_cells, bool zeros) {
  return {.kind = CellKind::int8, .ints = {.bits = 8, .scale_cells = scale_cells, .zeros = zeros}};
}
const std::vector<CellFormat> formats = {
    nvfp4_cells,
    mxfp4_cells,
    int4_cells(4, false),
    int4_cells(1, false),
    int4_cells(1, true),
    {.kind = CellKind::f8},
    int8_cells(4, false),
    int8_cells(1, true),
    {.kind = CellKind::mxfp8},
    {.kind = CellKind::ternary, .ints = {.bits = 2, .scale_cells = 2}},
    {.kind = CellKind::nf3, .ints = {.bits = 3}}};

// Bytes that a matrix of one unit and 128 k has, by its layout.
static_assert(4 * nvfp4_cells.cell_bytes() == CudaF4Cells<16>::bytes({.n = 16, .k = 128}));
static_assert(CellFormat{.kind = CellKind::f8}.cell_bytes() == CudaF8Cells::cell_bytes);
static_assert(CellFormat{.kind = CellKind::mxfp8}.cell_bytes() == CudaMxF8Cells::cell_bytes);
static_assert(4 * mxfp4_cells.cell_bytes() == CudaF4Cells<32>::bytes({.n = 16, .k = 128}));

// Every cell of a unit belongs to exactly one of the warps that share it.
void expect_split(const StreamMatrix& m, Dims half, int run) {
  EXPECT_EQ(m.rows_half, half.n);
  EXPECT_EQ(m.depth, half.k);
  EXPECT_GE(m.units * 16, half.n);
  EXPECT_LT((m.units - 1) * 16, half.n);
  EXPECT_EQ(m.cells, (half.k + 32 * run - 1) / (32 * run) * run);
  EXPECT_EQ(m.warp_cells % run, 0);
  EXPECT_EQ(m.piece_cells % run, 0);
  EXPECT_EQ(stream_warps % m.split, 0);
  EXPECT_EQ(m.split & (m.split - 1), 0);
  EXPECT_GE(m.warp_cells * m.split, m.cells);
  EXPECT_GE(m.piece_cells, 1);
  EXPECT_LE(m.piece_cells, std::min(m.warp_cells, stream_piece_cells));
}

// The areas of shared memory follow each other, are large enough, and end within the card's.
void expect_memory(const StreamPlan& plan, const CellFormat& format, const StreamCard& card) {
  const std::int64_t cells = std::max(plan.fc1.cells, plan.fc2.cells);
  EXPECT_GE(plan.routes_at, plan.items_at + 16 * plan.max_items);
  EXPECT_GE(plan.scales_at, plan.routes_at + 8 * plan.tokens * plan.top_k);
  EXPECT_GE(plan.tokens_at, plan.scales_at + 12 * plan.experts);
  EXPECT_GE(plan.tokens_bytes, cells * 512 * plan.token_tiles);
  EXPECT_GE(plan.partials_at, plan.tokens_at + plan.tokens_bytes);
  if (plan.fc1.split > 1 || plan.fc2.split > 1) {
    EXPECT_GE(plan.rings_at, plan.partials_at + 2 * stream_warps * plan.token_tiles * 1024);
  }
  EXPECT_GE(plan.slot_bytes, plan.fc1.piece_cells * format.cell_bytes());
  EXPECT_GE(plan.slot_bytes, plan.fc2.piece_cells * format.cell_bytes());
  EXPECT_GE(plan.slots, 2);
  EXPECT_LE(plan.slots, stream_max_slots);
  EXPECT_GE(plan.shared_bytes, plan.rings_at + stream_warps * plan.slots * plan.slot_bytes);
  EXPECT_GE(plan.shared_bytes, plan.counts_at + 2 * stream_warps * plan.experts);
  EXPECT_LE(plan.shared_bytes + 3072, static_cast<int>(card.shared_memory_bytes));
  for (const int at : {plan.routes_at, plan.tokens_at, plan.partials_at, plan.rings_at}) {
    EXPECT_EQ(at % 128, 0);
  }
  EXPECT_EQ(plan.slot_bytes % 16, 0);
}

TEST(CudaStreamPlan, HoldsForEveryShapeAndNumberOfTokens) {
  for (const CellFormat& format : formats) {
    for (StreamShape shape : layers) {
      for (const std::int64_t tokens : {1, 2, 3, 7, 8, 16, 33, 64, 128, 255, 256}) {
        shape.tokens = tokens;
        const Result<StreamPlan> plan = plan_stream(format, shape, h200);
        if (!plan && tokens * shape.top_k > 4096) continue;
        // Whole quads of int8 leave little room for the rest: the grouped kernels run such calls.
        if (!plan && format.kind == CellKind::int8) {
          shape.kind = format.kind;
          EXPECT_TRUE(plan_grouped(shape, h200));
          continue;
        }
        ASSERT_TRUE(plan) << plan.error().message() << " tokens " << tokens;
        SCOPED_TRACE(testing::Message() << "hidden " << shape.hidden_size << " tokens " << tokens);
        EXPECT_EQ(plan->blocks, 132);
        EXPECT_TRUE(plan->token_tiles == 1 || plan->token_tiles == 2 || plan->token_tiles == 4);
        EXPECT_LE(plan->token_tiles, format.most_token_tiles());
        expect_split(plan->fc1, {.n = shape.intermediate_size, .k = shape.hidden_size},
                     format.cell_multiple());
        expect_split(plan->fc2, {.n = shape.hidden_size / 2, .k = shape.intermediate_size},
                     format.cell_multiple());
        expect_memory(*plan, format, h200);
        // Any routing: all routes to few experts, or spread over all.
        EXPECT_GE(plan->max_items,
                  std::min(tokens * shape.top_k, (tokens * shape.top_k) / (8 * plan->token_tiles)));
        EXPECT_GE(plan->counters, plan->max_items + 2);
      }
    }
  }
}

// However routes fall, the items of all experts fit: an expert with c routes has ceil(c / width).
TEST(CudaStreamPlan, ItemsOfTheWorstRoutingFit) {
  for (const std::int64_t experts : {1, 3, 16, 128}) {
    for (const std::int64_t tokens : {1, 5, 9, 40, 200}) {
      for (const int tiles : {1, 2, 4}) {
        const Result<StreamPlan> plan =
            plan_stream(nvfp4_cells, {tokens, 2, experts, 256, 128}, h200, {0, 0, tiles});
        ASSERT_TRUE(plan);
        const std::int64_t width = 8 * plan->token_tiles;
        const std::int64_t routes = 2 * tokens;
        // One more than a whole item wherever that is possible, the rest to one expert.
        std::int64_t items = 0;
        std::int64_t left = routes;
        for (std::int64_t e = 0; e + 1 < experts && left > 0; ++e) {
          --left;
          ++items;
        }
        items += (left + width - 1) / width;
        EXPECT_LE(items, plan->max_items) << experts << " " << tokens << " " << tiles;
      }
    }
  }
}

TEST(CudaStreamPlan, SmallerSharedMemoryTakesShorterPieces) {
  const Result<StreamPlan> plan = plan_stream(nvfp4_cells, {4, 8, 128, 2048, 768}, rtx5090);
  ASSERT_TRUE(plan) << plan.error().message();
  expect_memory(*plan, nvfp4_cells, rtx5090);
  const Result<StreamPlan> refused = plan_stream(nvfp4_cells, {4, 8, 256, 7168, 2048}, rtx5090);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().message(),
            "cuda_stream: hidden_size 7168 and intermediate_size 2048 need more than the shared "
            "memory of one thread block, 101376 bytes");
}

TEST(CudaStreamPlan, ActivationsThatDoNotFitAreRefused) {
  const Result<StreamPlan> refused = plan_stream(nvfp4_cells, {1, 2, 8, 4096, 14336}, h200);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
}

TEST(CudaStreamPlan, RefusalsNameBothNumbers) {
  const auto message = [](const StreamShape& shape) {
    const Result<StreamPlan> plan = plan_stream(nvfp4_cells, shape, h200);
    return plan ? std::string() : plan.error().message();
  };
  EXPECT_EQ(message({0, 8, 128, 2048, 768}), "cuda_stream: tokens 0, expected at least 1");
  EXPECT_EQ(message({2000, 8, 128, 2048, 768}),
            "cuda_stream: tokens 2000, expected at most 1024 with top_k 8");
  EXPECT_EQ(message({1, 0, 128, 2048, 768}), "cuda_stream: top_k 0, expected 1 to 8192");
  EXPECT_EQ(message({1, 8, 4000, 2048, 768}), "cuda_stream: experts 4000, expected 1 to 1024");
  EXPECT_EQ(message({1, 8, 128, 2050, 768}),
            "cuda_stream: hidden_size 2050, expected a multiple of 16 from 16 to 1048576");
  EXPECT_EQ(message({1, 8, 128, 2048, 8}),
            "cuda_stream: intermediate_size 8, expected a multiple of 16 from 16 to 1048576");
}

// What was measured to be fastest is what is chosen.
TEST(CudaStreamPlan, ChoosesTheMeasuredSplits) {
  const auto splits = [](const StreamShape& shape) {
    const Result<StreamPlan> plan = plan_stream(nvfp4_cells, shape, h200);
    return plan ? std::pair(plan->fc1.split, plan->fc2.split) : std::pair(0, 0);
  };
  EXPECT_EQ(splits({1, 8, 128, 2048, 768}), std::pair(8, 4));
  EXPECT_EQ(splits({4, 8, 128, 2048, 768}), std::pair(1, 1));
  EXPECT_EQ(splits({1, 4, 128, 2880, 2880}), std::pair(2, 4));
  EXPECT_EQ(splits({64, 8, 128, 4096, 1408}), std::pair(1, 1));
  EXPECT_EQ(splits({1, 8, 256, 7168, 2048}), std::pair(4, 2));
}

// Whatever the routing, the items and rows of all experts have their place, and the areas follow
// each other.
TEST(CudaGroupedPlan, ItemsAndRowsOfTheWorstRoutingFit) {
  for (const std::int64_t experts : {1, 3, 16, 128}) {
    for (const std::int64_t tokens : {1, 5, 63, 300, 5000}) {
      for (const int width : {32, 64, 128}) {
        const std::int64_t routes = 2 * tokens;
        const Result<GroupedPlan> plan = plan_grouped({tokens, 2, experts, 256, 128}, h200, width);
        ASSERT_TRUE(plan) << plan.error().message();
        // One route to as many experts as there are, the rest to one.
        const std::int64_t single = std::min(experts - 1, routes);
        const std::int64_t left = routes - single;
        EXPECT_GE(plan->max_items, single + (left + width - 1) / width);
        EXPECT_GE(plan->max_rows, 8 * single + (left + 7) / 8 * 8);
        EXPECT_GE(plan->activated_at - plan->x_at, 2LL * plan->max_rows * 256);
        EXPECT_GE(plan->products_at - plan->activated_at, 2LL * plan->max_rows * 128);
        EXPECT_GE(plan->scratch_bytes - plan->products_at, 4LL * plan->max_rows * 256);
        EXPECT_EQ(plan->x_at % 1024 + plan->activated_at % 1024 + plan->products_at % 1024, 0);
      }
    }
  }
}

TEST(CudaGroupedPlan, RefusalsNameBothNumbers) {
  const auto message = [](const StreamShape& shape) {
    const Result<GroupedPlan> plan = plan_grouped(shape, h200);
    return plan ? std::string() : plan.error().message();
  };
  EXPECT_EQ(message({1, 8, 128, 2048, 768}), "");
  EXPECT_EQ(message({1, 8, 128, 2048, 720}),
            "cuda_grouped: intermediate_size 720, expected a multiple of 64 up to 1048576");
  EXPECT_EQ(message({1, 8, 2000, 2048, 768}), "cuda_grouped: experts 2000, expected 1 to 1024");
  EXPECT_EQ(message({1 << 24, 8, 128, 2048, 768}),
            "cuda_grouped: tokens 16777216, expected at most 16777216 divided by top_k 8");
  StreamShape gelu{1, 8, 128, 2048, 768};
  gelu.swiglu = false;
  EXPECT_EQ(message(gelu), "cuda_grouped: an activation other than silu and swigluoai");
}

// Formats whose scales go into the sums have items of 64 rows at most.
TEST(CudaGroupedPlan, ScaledSumsTakeNarrowerItems) {
  StreamShape shape{4096, 8, 128, 2048, 768};
  EXPECT_EQ(grouped_item_width(shape), 128);
  shape.kind = CellKind::int4;
  EXPECT_EQ(grouped_item_width(shape), 64);
  shape.tokens = 256;
  EXPECT_EQ(grouped_item_width(shape), 32);
}

// Few tokens stream, many are grouped, and what only one of both can run goes there.
TEST(CudaGroupedPlan, RunsWhereItWasFaster) {
  const auto grouped = [](std::int64_t tokens, bool plain, bool swiglu) {
    StreamShape shape{tokens, 8, 128, 4096, 1408};
    shape.plain = plain;
    shape.swiglu = swiglu;
    return runs_grouped(shape);
  };
  EXPECT_FALSE(grouped(256, true, true));
  EXPECT_TRUE(grouped(288, true, true));
  EXPECT_TRUE(grouped(160, false, true));
  EXPECT_FALSE(grouped(4096, false, false));
  EXPECT_FALSE(runs_grouped({4096, 8, 128, 4096, 1424}));
  StreamShape f8{64, 8, 128, 4096, 1408};
  f8.kind = CellKind::f8;
  EXPECT_FALSE(runs_grouped(f8));
  f8.tokens = 96;
  EXPECT_TRUE(runs_grouped(f8));
}

// Of a dense layer there is the second matrix alone, shared between the warps as far as they would
// be idle, and everything has its place.
TEST(CudaStreamPlan, ADenseLayerIsTheSecondMatrixAlone) {
  for (const CellFormat& format : formats) {
    for (const Dims d : {Dims{32, 32}, Dims{96, 160}, Dims{4096, 4096}, Dims{151936, 2048}}) {
      for (const std::int64_t tokens : {1, 8, 9, 16, 33, 100}) {
        SCOPED_TRACE(testing::Message() << "n " << d.n << " k " << d.k << " tokens " << tokens);
        const StreamShape shape = dense_shape(format.kind, tokens, d);
        const Result<StreamPlan> plan = plan_stream(format, shape, h200);
        ASSERT_TRUE(plan) << plan.error().message();
        EXPECT_EQ(plan->hidden, d.n);
        EXPECT_EQ(plan->fc1.units, 0);
        expect_split(plan->fc2, {.n = d.n / 2, .k = d.k}, format.cell_multiple());
        expect_memory(*plan, format, h200);
        EXPECT_GE(plan->max_items * 8 * plan->token_tiles, tokens);
        EXPECT_GE(plan->counters, plan->max_items + 2);
      }
    }
  }
  const auto split = [](Dims d) {
    const StreamShape shape = dense_shape(CellKind::nvfp4, 1, d);
    return plan_stream(nvfp4_cells, shape, h200)->fc2.split;
  };
  EXPECT_EQ(split({4096, 4096}), 16);   // a unit a block
  EXPECT_EQ(split({16384, 4096}), 4);   // four
  EXPECT_EQ(split({151936, 2048}), 4);  // 36: the last four are shared
  EXPECT_EQ(split({4096, 64}), 2);      // no more than there are cells
  const auto refused = plan_stream(nvfp4_cells, dense_shape(CellKind::nvfp4, 1, {64, 40}), h200);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "cuda_stream: k 40, expected a multiple of 16 from 16 to 1048576");
}

TEST(CudaGroupedPlan, ADenseLayerGathersItsOnlyActivations) {
  for (const Dims d : {Dims{32, 64}, Dims{96, 192}, Dims{4096, 12288}}) {
    for (const std::int64_t tokens : {1, 9, 130, 4096}) {
      const StreamShape shape = dense_shape(CellKind::nvfp4, tokens, d);
      const Result<GroupedPlan> plan = plan_grouped(shape, h200);
      ASSERT_TRUE(plan) << plan.error().message();
      EXPECT_EQ(plan->gathered, d.k);
      EXPECT_EQ(plan->units1, 0);
      EXPECT_EQ(plan->units2 * 32, d.n);
      EXPECT_EQ(plan->activated_at, plan->x_at);
      EXPECT_GE(plan->max_rows, (tokens + 7) / 8 * 8);
      EXPECT_GE(plan->max_items, (tokens + plan->item_rows - 1) / plan->item_rows);
      EXPECT_GE(plan->products_at - plan->x_at, 2 * plan->max_rows * d.k);
      EXPECT_GE(plan->scratch_bytes - plan->products_at, 4 * plan->max_rows * d.n);
    }
  }
  const auto refused = plan_grouped(dense_shape(CellKind::nvfp4, 1, {48, 64}), h200);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "cuda_grouped: n 48, expected a multiple of 32 up to 1048576");
}

// As measured: few results stream, and items are as wide as the multiprocessors have tiles for.
TEST(CudaGroupedPlan, DenseLayersRunWhereTheyWereFaster) {
  const auto shape = [](CellKind kind, std::int64_t tokens, Dims d) {
    return dense_shape(kind, tokens, d);
  };
  const Dims square{4096, 4096};
  EXPECT_FALSE(runs_grouped(shape(CellKind::nvfp4, 128, square)));
  EXPECT_TRUE(runs_grouped(shape(CellKind::nvfp4, 256, square)));
  EXPECT_TRUE(runs_grouped(shape(CellKind::f8, 128, square)));
  EXPECT_FALSE(runs_grouped(shape(CellKind::int4, 512, {1024, 4096})));
  EXPECT_EQ(grouped_item_width(shape(CellKind::nvfp4, 512, square)), 64);
  EXPECT_EQ(grouped_item_width(shape(CellKind::nvfp4, 1024, square)), 128);
  EXPECT_EQ(grouped_item_width(shape(CellKind::f8, 128, square)), 32);
  EXPECT_EQ(grouped_item_width(shape(CellKind::int4, 4096, square)), 64);
}

// All of them, or half of what a launch takes at most, again and again until it fits.
TEST(CudaStreamPlan, APartIsOfTheMostTokensThatALaunchTakes) {
  int halved = 0;
  for (const CellFormat& format : formats) {
    for (StreamShape shape : layers) {
      shape.kind = format.kind;
      const std::int64_t most = 8192 / shape.top_k;
      const auto fits = [&](std::int64_t tokens) {
        shape.tokens = tokens;
        return plan_stream(format, shape, h200).has_value();
      };
      EXPECT_FALSE(fits(most + 1));
      for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{37}, most, 20 * most}) {
        shape.tokens = tokens;
        const auto part = plan_stream_part(format, shape, h200);
        ASSERT_EQ(part.has_value(), fits(1));
        if (!part) continue;
        EXPECT_TRUE(fits(part->tokens));
        if (part->tokens == std::min(tokens, most)) continue;
        ++halved;
        EXPECT_LT(part->tokens, std::min(tokens, most));
        EXPECT_FALSE(fits(2 * part->tokens));
      }
    }
  }
  EXPECT_GT(halved, 0);
}

}  // namespace
}  // namespace fewbit::cuda
