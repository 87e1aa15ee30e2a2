// SPDX-License-Identifier: Apache-2.0
// The router on a device against the rules of route() in double, written for reading, and against
// route() itself. Needs a GPU; skipped where there is none.
#include "kernels/cuda/router.hpp"

#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <cmath>

#include "backends/cuda_moe/grouped_plan.hpp"
#include "backends/cuda_moe/router_plan.hpp"
#include "device/card_test.hpp"
#include "device/device_layer.hpp"
#include "device/exact_router.hpp"

namespace fewbit::cuda {
namespace {

class RouterTest : public CardTest {
 protected:
  RouterTest() : CardTest({.least = 90, .most = INT_MAX}) {}
};

struct Outcome {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  RouterState state = {};
  // Of a launch that divides rows: the scratch of the plan.
  GroupedPlan plan;
  std::vector<std::byte> scratch;
};

// With experts to divide rows between in the same launch.
struct Divided {
  std::int64_t experts = 0;
  std::vector<std::int32_t> map;  // of ids, or none
};

Result<Outcome> run(const RouterParams& params, const Rows& rows, const Divided* divided) {
  FEWBIT_TRY(const device::Stream stream, device::Stream::create());
  FEWBIT_TRY(const device::Buffer logits, upload(rows.logits, stream));
  FEWBIT_TRY(const device::Buffer bias, upload(rows.bias, stream));
  const auto routes = static_cast<std::size_t>(rows.tokens * params.top_k);
  FEWBIT_TRY(const device::Buffer ids, device::Buffer::allocate(4 * routes, stream));
  FEWBIT_TRY(const device::Buffer weights, device::Buffer::allocate(4 * routes, stream));
  FEWBIT_TRY(const device::Buffer state, device::Buffer::allocate(sizeof(RouterState), stream));
  for (const device::Buffer* b : {&ids, &weights}) {
    FEWBIT_TRY(device::fill(b->data(), 0xFF, b->size(), stream));
  }
  FEWBIT_TRY(device::fill(state.data(), 0, state.size(), stream));
  RouterArgs args = router_args(params, rows.experts);
  args.tokens = static_cast<int>(rows.tokens);
  args.logits = logits.as<float>();
  args.bias = rows.bias.empty() ? nullptr : bias.as<float>();
  args.ids = ids.as<std::int32_t>();
  args.weights = weights.as<float>();
  args.state = state.as<RouterState>();
  Outcome out;
  if (divided == nullptr) {
    FEWBIT_TRY(device::check(launch_router(args, stream.handle()), "router"));
  } else {
    const StreamShape shape{.tokens = rows.tokens,
                            .top_k = params.top_k,
                            .experts = divided->experts,
                            .hidden_size = 64,
                            .intermediate_size = 64};
    FEWBIT_TRY(out.plan, plan_grouped(shape, {.sm_count = 132, .shared_memory_bytes = 232448}));
    out.scratch.resize(static_cast<std::size_t>(out.plan.scratch_bytes));
    FEWBIT_TRY(const device::Buffer map, upload(divided->map, stream));
    FEWBIT_TRY(const device::Buffer scratch, device::Buffer::allocate(out.scratch.size(), stream));
    FEWBIT_TRY(device::fill(scratch.data(), 0xFF, scratch.size(), stream));
    MoeF4Args moe;
    moe.topk_ids = args.ids;
    moe.topk_weights = args.weights;
    moe.expert_map = divided->map.empty() ? nullptr : map.as<std::int32_t>();
    moe.map_size = static_cast<int>(divided->map.size());
    FEWBIT_TRY(device::check(
        launch_router_grouped(args, out.plan, moe, scratch.data(), stream.handle()), "router"));
    FEWBIT_TRY(device::copy_to_host(out.scratch, scratch.data(), stream));
    FEWBIT_TRY(stream.synchronize());
  }
  out.ids.resize(routes);
  out.weights.resize(routes);
  FEWBIT_TRY(device::copy_to_host(std::as_writable_bytes(std::span(out.ids)), ids.data(), stream));
  FEWBIT_TRY(
      device::copy_to_host(std::as_writable_bytes(std::span(out.weights)), weights.data(), stream));
  FEWBIT_TRY(
      device::copy_to_host(std::as_writable_bytes(std::span(&out.state, 1)), state.data(), stream));
  FEWBIT_TRY(stream.synchronize());
  return out;
}

void expect_routes(const RouterParams& params, const Rows& rows, const Outcome& out) {
  Routes exact;
  for (std::int64_t t = 0; t < rows.tokens; ++t) route_exactly(params, rows, t, exact);
  EXPECT_EQ(out.ids, exact.ids);
  EXPECT_EQ(out.state.fault, 0U);
  std::vector<std::int32_t> ids(exact.ids.size());
  std::vector<float> weights(exact.ids.size());
  ASSERT_OK(route(params, rows.tokens, rows.experts, rows.logits, rows.bias, ids, weights));
  EXPECT_EQ(out.ids, ids);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    // One rounding to f32, and of arithmetic in double.
    const double bound = std::ldexp(std::abs(exact.weights[i]), -24) * (1 + 1e-6) + 1e-45;
    ASSERT_LE(std::abs(double{out.weights[i]} - exact.weights[i]), bound) << "route " << i;
  }
}

TEST_F(RouterTest, ChoosesAndWeighsAsInDoubleByEveryRule) {
  for (const RouterParams& params : all_routers()) {
    for (const bool bias : {false, true}) {
      for (const Fill fill : {Fill::numbers, Fill::ties, Fill::masked, Fill::saturated}) {
        SCOPED_TRACE(testing::Message()
                     << "score " << static_cast<int>(params.score) << " renormalize "
                     << params.renormalize << " groups " << params.num_groups << " bias " << bias
                     << " fill " << static_cast<int>(fill));
        const Rows rows = random_rows(37, 64, bias, fill);
        const auto out = run(params, rows, nullptr);
        ASSERT_OK(out);
        expect_routes(params, rows, *out);
      }
    }
  }
}

struct Size {
  std::int64_t tokens, experts;
  int top_k, groups, top_groups;
};
const std::vector<Size> sizes = {{1, 1, 1, 1, 1},       {1, 256, 8, 8, 4},    {5, 8, 8, 1, 1},
                                 {3, 33, 32, 1, 1},     {129, 128, 8, 1, 1},  {64, 160, 6, 8, 3},
                                 {2, 384, 8, 1, 1},     {70, 512, 32, 1, 1},  {33, 512, 10, 32, 5},
                                 {40, 512, 22, 16, 16}, {9, 60, 4, 30, 2},    {9, 24, 3, 24, 5},
                                 {1000, 129, 8, 3, 2},  {300, 257, 16, 1, 1}, {4096, 128, 8, 1, 1}};

RouterParams params_of(const Size& size, Score score) {
  return {.score = score,
          .top_k = size.top_k,
          .num_groups = size.groups,
          .top_groups = size.top_groups};
}

TEST_F(RouterTest, AnyNumberOfExpertsGroupsAndSlots) {
  for (const Size& size : sizes) {
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << size.tokens << " tokens, " << size.experts << " experts");
      const RouterParams params = params_of(size, bias ? Score::sigmoid : Score::softmax);
      const Rows rows = random_rows(size.tokens, size.experts, bias, Fill::numbers);
      const auto out = run(params, rows, nullptr);
      ASSERT_OK(out);
      expect_routes(params, rows, *out);
    }
  }
}

template <class T>
std::vector<T> part_of(const Outcome& out, long long at, std::size_t count) {
  std::vector<T> part(count);
  std::memcpy(part.data(), out.scratch.data() + at, count * sizeof(T));
  return part;
}

// Every expert has its routes, in rows of its own, pieces that fill them, and padding of weight 0.
void expect_division(const Outcome& out, const Divided& divided) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(divided.experts));
  for (std::int32_t id : out.ids) {
    const bool mapped = !divided.map.empty();
    if (mapped) {
      id = id >= 0 && id < std::ssize(divided.map) ? divided.map[static_cast<std::size_t>(id)] : -1;
    }
    if (id >= 0 && id < divided.experts) ++counts[static_cast<std::size_t>(id)];
  }
  struct Rows4 {
    int first, count, width, next;
  };
  const auto experts = part_of<Rows4>(out, out.plan.experts_at, counts.size());
  const int items = part_of<int>(out, out.plan.items_count_at, 1)[0];
  ASSERT_LE(items, out.plan.max_items);
  const auto pieces = part_of<GroupedItem>(out, out.plan.items_at, static_cast<std::size_t>(items));
  const auto weights =
      part_of<float>(out, out.plan.row_weight_at, static_cast<std::size_t>(out.plan.max_rows));
  int row = 0;
  std::size_t item = 0;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    ASSERT_EQ(experts[e].first, row) << "expert " << e;
    ASSERT_EQ(experts[e].next, row);
    ASSERT_EQ(experts[e].count, counts[e]) << "expert " << e;
    int left = experts[e].count;
    for (; left > 0; ++item) {
      ASSERT_LT(item, pieces.size());
      const GroupedItem& piece = pieces[item];
      ASSERT_EQ(piece.expert, static_cast<int>(e));
      ASSERT_EQ(piece.first_row, row + experts[e].count - left);
      ASSERT_GE(piece.count, 1);
      ASSERT_LE(piece.rows, out.plan.item_rows);
      ASSERT_EQ(piece.rows, (piece.count + 7) / 8 * 8);
      left -= piece.count;
    }
    ASSERT_EQ(left, 0);
    for (; row % 8 != 0 || row < experts[e].first + experts[e].count; ++row) {
      if (row < experts[e].first + experts[e].count) continue;
      ASSERT_EQ(weights[static_cast<std::size_t>(row)], 0.0F) << "row " << row;
    }
  }
  EXPECT_EQ(item, pieces.size());
}

TEST_F(RouterTest, DividesRowsBetweenExpertsInTheSameLaunch) {
  for (const Size& size : sizes) {
    SCOPED_TRACE(testing::Message() << size.tokens << " tokens, " << size.experts << " experts");
    const RouterParams params = params_of(size, Score::softmax);
    const Rows rows = random_rows(size.tokens, size.experts, false, Fill::numbers);
    const Divided all{.experts = size.experts, .map = {}};
    // Every second id is here; others are nowhere or out of range.
    Divided half{.experts = (size.experts + 1) / 2, .map = {}};
    for (std::int32_t id = 0; id < size.experts - size.experts / 8; ++id) {
      half.map.push_back(id % 2 == 0 ? id / 2 : id % 3 == 0 ? 100000 : -id);
    }
    for (const Divided& divided : {all, half}) {
      const auto out = run(params, rows, &divided);
      ASSERT_OK(out);
      expect_routes(params, rows, *out);
      expect_division(*out, divided);
    }
  }
}

TEST_F(RouterTest, TellsTheFirstLogitWithoutAnOrderAndMakesItsTokenNan) {
  const RouterParams params{.top_k = 3};
  const Size size{70, 130, 3, 1, 1};
  for (const float wrong : {std::nanf(""), infinity}) {
    Rows rows = random_rows(size.tokens, size.experts, false, Fill::numbers);
    rows.logits[65 * 130 + 1] = wrong;
    rows.logits[40 * 130 + 129] = wrong;
    rows.logits[40 * 130 + 77] = wrong;
    const auto out = run(params, rows, nullptr);
    ASSERT_OK(out);
    const Result<void> fault = check_fault(out->state.fault, size.experts, "layer");
    ASSERT_FALSE(fault);
    EXPECT_NE(fault.error().what.find("token 40, expert 77"), std::string::npos)
        << fault.error().what;
    for (std::size_t i = 0; i < out->weights.size(); ++i) {
      const bool faulty = i / 3 == 40 || i / 3 == 65;
      ASSERT_EQ(std::isnan(out->weights[i]), faulty) << "route " << i;
      ASSERT_GE(out->ids[i], 0);
      ASSERT_LT(out->ids[i], 130);
    }
  }
  Rows masked = random_rows(size.tokens, size.experts, false, Fill::numbers);
  std::fill_n(masked.logits.begin() + 9 * 130, 130, -infinity);
  const auto out = run(params, masked, nullptr);
  ASSERT_OK(out);
  const Result<void> fault = check_fault(out->state.fault, size.experts, "layer");
  ASSERT_FALSE(fault);
  EXPECT_NE(fault.error().what.find("all 130 logits of token 9 are -inf"), std::string::npos);
}

// Values that bf16, f16 and f32 hold exactly are multiples of 1/8.
template <class T, class Encode>
std::vector<T> encoded(const std::vector<float>& values, const Encode& encode) {
  std::vector<T> out;
  for (const float v : values) out.push_back(encode(v));
  return out;
}

TEST_F(RouterTest, LogitsAreTheProductsInF32) {
  const auto to_bf16 = [](float v) { return f32_to_bf16(v); };
  const auto to_f16 = [](float v) { return f32_to_f16(v); };
  for (const auto [tokens, experts, hidden] :
       {std::array{1, 128, 2048}, {1, 3, 8}, {19, 67, 264}, {8, 5, 7168}}) {
    std::uint64_t seed = 5;
    const auto draw = [&](int count) {
      std::vector<float> values;
      for (int i = 0; i < count; ++i) {
        values.push_back(static_cast<float>(static_cast<int>(next_random(seed) % 255) - 127) / 8);
      }
      return values;
    };
    const std::vector<float> x = draw(tokens * hidden);
    const std::vector<float> w = draw(experts * hidden);
    const auto stream = device::Stream::create();
    ASSERT_OK(stream);
    const auto x_bf16 = upload(encoded<std::uint16_t>(x, to_bf16), *stream);
    const auto x_f16 = upload(encoded<std::uint16_t>(x, to_f16), *stream);
    const auto w_bf16 = upload(encoded<std::uint16_t>(w, to_bf16), *stream);
    const auto w_f16 = upload(encoded<std::uint16_t>(w, to_f16), *stream);
    const auto w_f32 = upload(w, *stream);
    for (const auto& [x_type, of_x] :
         {std::pair{PlainType::bf16, &*x_bf16}, {PlainType::f16, &*x_f16}}) {
      for (const auto& [w_type, of_w] : {std::pair{PlainType::bf16, &*w_bf16},
                                         {PlainType::f16, &*w_f16},
                                         {PlainType::f32, &*w_f32}}) {
        std::vector<float> logits(static_cast<std::size_t>(tokens * experts), std::nanf(""));
        const auto out = upload(logits, *stream);
        ASSERT_OK(out);
        const RouterProjection projection{.tokens = tokens,
                                          .experts = experts,
                                          .hidden = hidden,
                                          .x_type = x_type,
                                          .w_type = w_type,
                                          .x = of_x->data(),
                                          .w = of_w->data(),
                                          .logits = out->as<float>()};
        ASSERT_OK(device::check(launch_router_logits(projection, stream->handle()), "logits"));
        ASSERT_OK(
            device::copy_to_host(std::as_writable_bytes(std::span(logits)), out->data(), *stream));
        ASSERT_OK(stream->synchronize());
        for (std::size_t i = 0; i < logits.size(); ++i) {
          const std::size_t t = i / static_cast<std::size_t>(experts);
          const std::size_t e = i % static_cast<std::size_t>(experts);
          double sum = 0;
          double size = 0;
          for (std::size_t k = 0; k < static_cast<std::size_t>(hidden); ++k) {
            const double product = double{x[t * static_cast<std::size_t>(hidden) + k]} *
                                   double{w[e * static_cast<std::size_t>(hidden) + k]};
            sum += product;
            size += std::abs(product);
          }
          ASSERT_LE(std::abs(double{logits[i]} - sum), std::ldexp(size * hidden, -24))
              << "token " << t << " expert " << e;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fewbit::cuda
