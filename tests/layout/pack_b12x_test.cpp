// SPDX-License-Identifier: Apache-2.0
// Fast packing gives the bytes of the closed form, on every ISA level of this machine.
#include "layout/pack_b12x.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/backward_executor.hpp"
#include "layout/pack.hpp"
#include "layout/pack_fast.hpp"
#include "layout/row_major.hpp"

namespace fewbit {
namespace {

using ::fewbit::testing::BackwardExecutor;

constexpr std::byte canary{0x5a};

std::vector<std::byte> random_bytes(std::int64_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

B12xPackJob make_job(std::int64_t experts, Dims dims, std::int64_t shift) {
  return {.experts = experts, .dims = dims, .rows = {.rows = dims.n, .shift = shift}};
}

std::vector<std::byte> pack_by_closed_form(const B12xPackJob& job,
                                           std::span<const std::byte> codes) {
  std::vector<std::byte> tiles(codes.size());
  const auto bytes = static_cast<std::size_t>(job.expert_bytes());
  for (std::size_t e = 0; e < static_cast<std::size_t>(job.experts); ++e) {
    const auto expert = codes.subspan(e * bytes, bytes);
    pack<B12xPacked>(
        job.dims,
        [&](std::int64_t n, std::int64_t k) {
          return read_bits<4>(expert, RowMajor<4>::place(job.dims, job.rows.source(n), k));
        },
        std::span(tiles).subspan(e * bytes, bytes));
  }
  return tiles;
}

class PackB12xTest : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override {
    const auto machine = detect_cpu();
    ASSERT_TRUE(machine) << machine.error().message();
    if (GetParam() > best_isa(machine->cpu)) {
      GTEST_SKIP() << "this CPU lacks " << isa_name(GetParam());
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Isa, PackB12xTest,
                         ::testing::Values(IsaLevel::generic, IsaLevel::avx2, IsaLevel::avx512),
                         [](const auto& param) { return std::string(isa_name(param.param)); });

TEST_P(PackB12xTest, GivesTheBytesOfTheClosedForm) {
  BackwardExecutor executor(3);
  for (const std::int64_t n : {64, 128, 192, 320}) {
    // Up to a whole vector of tiles along k, one more, several and a rest.
    for (const std::int64_t k : {16, 32, 48, 64, 80, 96, 112, 128, 144, 256, 400}) {
      for (const std::int64_t shift : {std::int64_t{0}, n / 2, std::int64_t{1}}) {
        B12xPackJob job = make_job(2, {.n = n, .k = k}, shift);
        job.isa = GetParam();
        const auto codes = random_bytes(job.experts * job.expert_bytes());
        auto buffer = AlignedBuffer::allocate(codes.size());  // aligned: whole lines are streamed
        ASSERT_TRUE(buffer);
        pack_b12x(job, codes, buffer->span(), executor);
        const std::vector<std::byte> tiles(buffer->span().begin(), buffer->span().end());
        ASSERT_EQ(tiles, pack_by_closed_form(job, codes)) << n << " x " << k << " shift " << shift;
      }
    }
  }
}

TEST_P(PackB12xTest, NeedsNoAlignmentAndWritesNothingElse) {
  B12xPackJob job = make_job(1, {.n = 128, .k = 144}, 64);
  job.isa = GetParam();
  const auto bytes = static_cast<std::size_t>(job.expert_bytes());
  const auto codes = random_bytes(job.expert_bytes());
  for (const auto offset : std::to_array<std::size_t>({1, 3, 8, 33})) {
    std::vector<std::byte> moved(offset + bytes);
    std::copy(codes.begin(), codes.end(), moved.begin() + static_cast<std::ptrdiff_t>(offset));
    std::vector<std::byte> buffer(offset + bytes + 64, canary);
    pack_b12x(job, std::span(moved).subspan(offset), std::span(buffer).subspan(offset, bytes),
              serial_executor());
    const auto written = std::span(buffer).subspan(offset, bytes);
    EXPECT_EQ(std::vector<std::byte>(written.begin(), written.end()),
              pack_by_closed_form(job, codes));
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      const bool outside = i < offset || i >= offset + bytes;
      ASSERT_TRUE(!outside || buffer[i] == canary) << i;
    }
  }
}

TEST_P(PackB12xTest, TheThreadsDoNotChangeTheBytes) {
  B12xPackJob job = make_job(5, {.n = 192, .k = 144}, 96);
  job.isa = GetParam();
  const auto codes = random_bytes(job.experts * job.expert_bytes());
  const auto expected = pack_by_closed_form(job, codes);
  for (const int threads : {1, 2, 3, 7}) {
    const auto pool = make_thread_pool(threads);
    ASSERT_TRUE(pool) << pool.error().message();
    std::vector<std::byte> tiles(codes.size());
    pack_b12x(job, codes, tiles, **pool);
    EXPECT_EQ(tiles, expected) << threads << " threads";
    auto buffer = codes;
    ASSERT_TRUE(pack_b12x_in_place(job, buffer, **pool));
    EXPECT_EQ(buffer, expected) << threads << " threads";
  }
}

TEST_P(PackB12xTest, PacksInPlaceAlsoBeyondOneBlockOfCopying) {
  B12xPackJob job = make_job(2, {.n = 512, .k = 528}, 256);
  ASSERT_GT(job.expert_bytes(), 2 << 16);
  job.isa = GetParam();
  auto buffer = random_bytes(job.experts * job.expert_bytes());
  const auto expected = pack_by_closed_form(job, buffer);
  BackwardExecutor executor(4);
  ASSERT_TRUE(pack_b12x_in_place(job, buffer, executor));
  EXPECT_EQ(buffer, expected);
}

TEST(PackB12xPanelTest, EveryLevelHasAVariantAndHigherOnesUseTheirOwn) {
  for (const IsaLevel level :
       {IsaLevel::generic, IsaLevel::neon, IsaLevel::avx2, IsaLevel::avx512, IsaLevel::amx}) {
    EXPECT_NE(pack_b12x_panel(level), nullptr);
  }
  EXPECT_EQ(pack_b12x_panel(IsaLevel::generic), &pack_b12x_panel_generic);
#if defined(__x86_64__)
  EXPECT_EQ(pack_b12x_panel(IsaLevel::avx2), &pack_b12x_panel_avx2);
  EXPECT_EQ(pack_b12x_panel(IsaLevel::avx512), &pack_b12x_panel_avx512);
  EXPECT_EQ(pack_b12x_panel(IsaLevel::amx), &pack_b12x_panel_avx512);
#endif
}

}  // namespace
}  // namespace fewbit
