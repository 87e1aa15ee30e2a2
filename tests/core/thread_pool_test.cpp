// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fewbit/executor.hpp"

namespace fewbit {
namespace {

std::unique_ptr<Executor> pool_of(int threads) {
  Result<std::unique_ptr<Executor>> pool = make_thread_pool(threads);
  EXPECT_TRUE(pool) << pool.error().message();
  return *std::move(pool);
}

TEST(ThreadPool, RunsEveryIndexOnceForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 5, 8}) {
    const auto pool = pool_of(threads);
    EXPECT_EQ(pool->threads(), threads);
    for (const int count : {0, 1, 2, threads - 1, threads, threads + 1, 100, 1000}) {
      std::vector<int> calls(static_cast<std::size_t>(count), 0);
      parallel_for(*pool, count, [&](int i) { ++calls[static_cast<std::size_t>(i)]; });
      EXPECT_EQ(calls, std::vector<int>(calls.size(), 1)) << threads << " threads, " << count;
    }
  }
}

// What a run wrote is visible to its caller, and what the caller wrote to the next run.
TEST(ThreadPool, ManySmallRunsSeeEachOthersWrites) {
  const auto pool = pool_of(4);
  std::vector<int> values(16, 0);
  for (int round = 0; round < 3000; ++round) {
    parallel_for(*pool, 16, [&](int i) { ++values[static_cast<std::size_t>(i)]; });
    for (int& value : values) ++value;
  }
  EXPECT_EQ(values, std::vector<int>(16, 6000));
}

// Tasks that wait for each other need a thread each.
TEST(ThreadPool, UsesItsThreadsAndTheCaller) {
  const auto pool = pool_of(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread::id> ids(3);
    std::latch all(3);
    parallel_for(*pool, 3, [&](int i) {
      ids[static_cast<std::size_t>(i)] = std::this_thread::get_id();
      all.arrive_and_wait();
    });
    EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 3U);
    EXPECT_EQ(ids[0], std::this_thread::get_id());
  }
}

// Whoever runs it, and however late a worker is: each index once, and none after the run.
TEST(ThreadPool, EachIndexRunsOnceInEachOfManyShortRuns) {
  const auto pool = pool_of(8);
  std::vector<int> runs(37);
  for (int round = 1; round <= 3000; ++round) {
    const int count = 1 + round % 37;
    std::fill(runs.begin(), runs.end(), 0);
    parallel_for(*pool, count, [&](int i) { ++runs[static_cast<std::size_t>(i)]; });
    for (int i = 0; i < 37; ++i) {
      ASSERT_EQ(runs[static_cast<std::size_t>(i)], i < count ? 1 : 0) << "round " << round;
    }
  }
}

TEST(ThreadPool, ANestedRunCompletes) {
  const auto pool = pool_of(3);
  const auto other = pool_of(2);
  std::atomic<int> done = 0;
  parallel_for(*pool, 7, [&](int) {
    parallel_for(*pool, 5, [&](int) { ++done; });
    parallel_for(*other, 5, [&](int) { parallel_for(*pool, 2, [&](int) { ++done; }); });
  });
  EXPECT_EQ(done, 7 * (5 + 5 * 2));
}

TEST(ThreadPool, RunsOfSeveralCallersDoNotMix) {
  const auto pool = pool_of(3);
  std::vector<std::vector<int>> calls(4, std::vector<int>(50, 0));
  std::vector<std::jthread> callers;
  callers.reserve(calls.size());
  for (auto& mine : calls) {
    callers.emplace_back([&pool, &mine] {
      for (int round = 0; round < 50; ++round) {
        parallel_for(*pool, 50, [&](int i) { ++mine[static_cast<std::size_t>(i)]; });
      }
    });
  }
  callers.clear();
  for (const auto& mine : calls) EXPECT_EQ(mine, std::vector<int>(50, 50));
}

TEST(ThreadPool, StopsWithoutEverRunning) {
  for (int i = 0; i < 20; ++i) pool_of(6);
}

TEST(ThreadPool, RefusesImpossibleThreadCounts) {
  const auto negative = make_thread_pool(-3);
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(negative.error().what, "asked for -3 threads, expected 0 (automatic) to 1024");
  EXPECT_FALSE(make_thread_pool(1025));
  EXPECT_GE(pool_of(0)->threads(), 1);
}

TEST(SerialExecutor, RunsInOrderOnTheCaller) {
  std::vector<int> order;
  parallel_for(serial_executor(), 4, [&](int i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(serial_executor().threads(), 1);
}

}  // namespace
}  // namespace fewbit
