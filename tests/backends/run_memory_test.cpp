// SPDX-License-Identifier: Apache-2.0
// A call of a prepared layer takes no memory of its own: the first as little as any other.
#include <gtest/gtest.h>

#include "backends/moe_case.hpp"
#include "core/aligned_buffer.hpp"
#include "fewbit/moe.hpp"
#include "layout/counting_memory.hpp"
#include "select/backend.hpp"
#include "select/prepare_moe.hpp"

namespace fewbit {
namespace {

TEST(RunMemory, ACallTakesNone) {
  const test::LayerSpec spec{.experts = 8, .weight = DType::f4_e2m1, .activation = {}};
  const MoeProblem problem = test::problem_of(spec, 2, 130);
  const auto pool = make_thread_pool(2);
  ASSERT_TRUE(pool);
  for (const char* backend : {"cpu_generic", "reference"}) {
    auto prepared =
        prepare_moe(*find_backend(backend), problem, test::random_weights(spec), serial_executor());
    ASSERT_TRUE(prepared) << prepared.error().message();
    const MoeLayer layer(problem, *std::move(prepared));
    for (const std::int64_t tokens : {1, 130, 9}) {
      const test::Call call = test::random_call(problem, tokens, 3);
      AlignedBuffer workspace = *AlignedBuffer::allocate(*layer.workspace_bytes(tokens));
      std::vector<std::byte> hidden(static_cast<std::size_t>(tokens * problem.hidden_size * 2));
      std::vector<std::byte> out(hidden.size());
      MoeArgs args = test::args_of(problem, call, hidden);
      args.out = out;
      args.workspace = workspace.span();
      for (Executor* executor : {&serial_executor(), pool->get()}) {
        testing::reset_peak();
        const std::int64_t before = testing::allocated_bytes();
        const auto done = layer.run(args, *executor);
        const std::int64_t taken = testing::peak_bytes() - before;
        EXPECT_TRUE(done) << done.error().message();
        EXPECT_EQ(taken, 0) << backend << ", " << tokens << " tokens, " << executor->threads();
      }
    }
  }
}

}  // namespace
}  // namespace fewbit
