// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/machine_limits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/levels.hpp"

namespace fewbit {
namespace {

struct Loops {
  FmaLoopFn* fma;
  ReadLoopFn* read;
  int chains;        // independent ones, each from its own start
  int summed_lanes;  // lanes of a chain that go into the sink
  int lanes;
};

Loops loops_of(IsaLevel level) {
#if defined(__x86_64__)
  if (level == IsaLevel::avx512) return {fma_loop_avx512, read_loop_avx512, 16, 16, 16};
  if (level == IsaLevel::avx2) return {fma_loop_avx2, read_loop_avx2, 12, 1, 8};
#elif defined(__aarch64__)
  if (level == IsaLevel::neon) return {fma_loop_neon, read_loop_neon, 16, 4, 4};
#endif
  static_cast<void>(level);
  return {fma_loop_generic, read_loop_generic, 40, 1, 1};
}

class MachineLimits : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override { FEWBIT_SKIP_UNUSABLE(GetParam()); }
};

// After n rounds of x <- 0.999 x + 0.001 a chain that started at s is at 1 + (s - 1) 0.999^n. Equal
// starts would let a compiler compute one chain for all and report several times the peak.
TEST_P(MachineLimits, EveryChainOfTheFmaLoopIsItsOwn) {
  const Loops loops = loops_of(GetParam());
  constexpr std::int64_t rounds = 500;
  float sink = 3.0F;
  const std::int64_t flops = loops.fma(rounds, &sink);
  EXPECT_EQ(flops, rounds * 2 * loops.chains * loops.lanes);
  double expected = 3.0;
  for (int chain = 0; chain < loops.chains; ++chain)
    expected += loops.summed_lanes * (1 + (chain + 3.0 - 1) * std::pow(0.999, rounds));
  // 500 roundings of values below 50 in each chain, and those of the sum.
  EXPECT_NEAR(sink, expected, expected * 1e-4);
  EXPECT_GT(expected - 3.0, 1.5 * loops.chains * loops.summed_lanes);  // starts still show
}

TEST_P(MachineLimits, TheReadLoopReadsEveryByte) {
  std::vector<std::uint8_t> bytes(1024);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] = 0x10;
    EXPECT_NE(loops_of(GetParam()).read(bytes.data(), std::ssize(bytes)), 0U) << "byte " << at;
    bytes[at] = 0;
  }
  EXPECT_EQ(loops_of(GetParam()).read(bytes.data(), std::ssize(bytes)), 0U);
}

#if defined(__x86_64__)
// Every sum of a tile grows by 32 a round, from what the sink was.
TEST(MachineLimitsOfTiles, CountEveryProduct) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::amx);
  float sink = 3.0F;
  EXPECT_EQ(tile_loop_amx(500, &sink), std::int64_t{500} * 4 * 16 * 16 * 32 * 2);
  EXPECT_EQ(sink, 8 * (3.0F + 500 * 32));
}
#endif

FEWBIT_INSTANTIATE_LEVELS(MachineLimits);

}  // namespace
}  // namespace fewbit
