// SPDX-License-Identifier: Apache-2.0
#include "prepared/journal.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "checkpoint/scratch_folder.hpp"

namespace fewbit {
namespace {

const JobIdentity job{{"backend", "cpu_avx2"}, {"source model.safetensors", "12 bytes"}};

TEST(Journal, GivesBackWhatWasAppended) {
  const ScratchFolder folder;
  {
    auto journal = *Journal::open(folder / "j");
    EXPECT_FALSE(journal.read()->begun);
    ASSERT_TRUE(journal.begin(job));
    ASSERT_TRUE(journal.append(std::vector<std::int64_t>{3, 1}));
    ASSERT_TRUE(journal.append(std::vector<std::int64_t>{7}));
  }
  const auto content = Journal::open(folder / "j")->read();
  ASSERT_TRUE(content) << content.error().message();
  EXPECT_TRUE(content->begun);
  EXPECT_EQ(content->identity, job);
  EXPECT_EQ(content->done, (std::vector<std::int64_t>{3, 1, 7}));
}

// Killed at any byte, it speaks of finished lines only, and goes on behind them.
TEST(Journal, CutAnywhereCountsWholeLinesOnly) {
  const ScratchFolder folder;
  {
    auto journal = *Journal::open(folder / "whole");
    ASSERT_TRUE(journal.begin(job));
    ASSERT_TRUE(journal.append(std::vector<std::int64_t>{10, 20}));
  }
  const std::string text = file_content(folder / "whole");
  for (std::size_t size = 0; size <= text.size(); ++size) {
    folder.write("cut", text.substr(0, size));
    auto journal = *Journal::open(folder / "cut");
    const auto content = journal.read();
    ASSERT_TRUE(content) << size << ": " << content.error().message();
    EXPECT_EQ(content->begun, text.substr(0, size).find('\n') != std::string::npos);
    EXPECT_EQ(content->done.size(), size == text.size() ? 2U : size + 3 >= text.size() ? 1U : 0U);
    if (!content->begun) continue;
    ASSERT_TRUE(journal.resume());
    ASSERT_TRUE(journal.append(std::vector<std::int64_t>{30}));
    EXPECT_EQ(journal.read()->done.back(), 30);
    EXPECT_EQ(journal.read()->done.size(), content->done.size() + 1);
  }
}

TEST(Journal, IsOneRunsAlone) {
  const ScratchFolder folder;
  auto first = Journal::open(folder / "j");
  ASSERT_TRUE(first);
  const auto second = Journal::open(folder / "j");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::io);
  EXPECT_NE(second.error().message().find("another run is at work"), std::string::npos);
  ASSERT_TRUE(first->remove());
  EXPECT_FALSE(std::filesystem::exists(folder / "j"));
}

TEST(Journal, RefusesLinesThatAreNoTasks) {
  const ScratchFolder folder;
  {
    auto journal = *Journal::open(folder / "j");
    ASSERT_TRUE(journal.begin(job));
  }
  const std::string head = file_content(folder / "j");
  for (const char* line : {"-1", "x", "", "1 2", "99999999999999999999"}) {
    folder.write("bad", head + "5\n" + line + "\n");
    const auto content = Journal::open(folder / "bad")->read();
    ASSERT_FALSE(content) << line;
    EXPECT_EQ(content.error().code, ErrorCode::corrupt);
    EXPECT_NE(content.error().message().find("line 3"), std::string::npos);
  }
  folder.write("bad", "{\"format\": \"other\"}\n");
  EXPECT_FALSE(Journal::open(folder / "bad")->read());
}

TEST(Journal, EveryDifferenceOfAJobIsNamed) {
  EXPECT_EQ(identity_difference(job, job), "");
  EXPECT_EQ(identity_difference(job, {{"backend", "reference"}, {"rank", "1"}}),
            "backend: begun with \"cpu_avx2\", now \"reference\"; source model.safetensors: begun "
            "with \"12 bytes\", now nothing; rank: begun with nothing, now \"1\"");
}

}  // namespace
}  // namespace fewbit
