// SPDX-License-Identifier: Apache-2.0
#include "prepared/growing_hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/scratch_folder.hpp"

namespace fewbit {
namespace {

struct Cut {
  std::string content;
  std::vector<GrowingHash::Part> parts;
  std::vector<std::vector<GrowingHash::Written>> of_task;
};

// A header, parts of `tasks` tasks with gaps between some of them, empty ones among them, and an
// end that no task writes.
Cut cut_of(unsigned seed, std::int64_t tasks) {
  std::mt19937 random(seed);
  Cut cut;
  cut.content.assign(std::size_t{5} << 20, '\0');
  for (char& byte : cut.content) byte = static_cast<char>(random());
  cut.of_task.resize(static_cast<std::size_t>(tasks));
  std::uint64_t at = 100 + random() % 100;
  for (std::int64_t round = 0; round < 3; ++round) {
    for (std::int64_t task = 0; task < tasks; ++task) {
      const std::uint64_t bytes = random() % 4 == 0 ? 0 : random() % 60000;
      cut.parts.push_back({.begin = at, .task = task});
      cut.of_task[static_cast<std::size_t>(task)].push_back(
          {.begin = at, .bytes = std::as_bytes(std::span(cut.content)).subspan(at, bytes)});
      at += bytes + random() % 2 * (random() % 5000);
    }
  }
  std::ranges::shuffle(cut.parts, random);
  return cut;
}

OutputFile written(const std::filesystem::path& path, const std::string& content) {
  auto file = OutputFile::create(path, content.size());
  EXPECT_TRUE(file);
  EXPECT_TRUE(file->write(std::as_bytes(std::span(content)), 0));
  return *std::move(file);
}

TEST(GrowingHash, IsThatOfTheFileInWhateverOrderItsPartsAreDone) {
  const ScratchFolder folder;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::int64_t tasks = 1 + seed % 9;
    const Cut cut = cut_of(seed, tasks);
    const OutputFile file = written(folder / ("file" + std::to_string(seed)), cut.content);
    GrowingHash hash(file, cut.content.size(), cut.parts);
    std::vector<bool> done(static_cast<std::size_t>(tasks));
    const GrowingHash::Progress progress{
        .is_done = [&](std::int64_t task) { return done[static_cast<std::size_t>(task)]; },
        .stopped = [] { return false; }};
    std::vector<std::size_t> order(done.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 random(seed);
    std::ranges::shuffle(order, random);
    for (const std::size_t task : order) {
      done[task] = true;
      // Some have their bytes in memory still.
      const bool in_memory = random() % 2 == 0;
      ASSERT_TRUE(hash.advance(progress, in_memory ? std::span(cut.of_task[task])
                                                   : std::span<const GrowingHash::Written>()));
    }
    const auto all = hash.finish(progress, {});
    ASSERT_TRUE(all) << all.error().message();
    EXPECT_EQ(*all, hash_bytes(std::as_bytes(std::span(cut.content)))) << seed;
  }
}

TEST(GrowingHash, IsTheSameFromManyThreads) {
  const ScratchFolder folder;
  constexpr std::int64_t tasks = 64;
  const Cut cut = cut_of(7, tasks);
  const OutputFile file = written(folder / "file", cut.content);
  for (int round = 0; round < 20; ++round) {
    GrowingHash hash(file, cut.content.size(), cut.parts);
    std::vector<std::atomic<bool>> done(tasks);
    std::atomic<std::int64_t> next = 0;
    const GrowingHash::Progress progress{
        .is_done = [&](std::int64_t task) -> bool { return done[static_cast<std::size_t>(task)]; },
        .stopped = [] { return false; }};
    std::vector<std::thread> threads;
    threads.reserve(3);
    std::atomic<int> failures = 0;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&] {
        for (auto task = static_cast<std::size_t>(next++); task < done.size();
             task = static_cast<std::size_t>(next++)) {
          done[task] = true;
          if (!hash.advance(progress, cut.of_task[task])) ++failures;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    const auto all = hash.finish(progress, {});
    ASSERT_TRUE(all) << all.error().message();
    EXPECT_EQ(*all, hash_bytes(std::as_bytes(std::span(cut.content))));
  }
}

TEST(GrowingHash, StopsWhenToldTo) {
  const ScratchFolder folder;
  const std::string content(std::size_t{9} << 20, 'x');
  const OutputFile file = written(folder / "file", content);
  GrowingHash hash(file, content.size(), {});
  const auto all = hash.finish(
      {.is_done = [](std::int64_t) { return true; }, .stopped = [] { return true; }}, {});
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace fewbit
