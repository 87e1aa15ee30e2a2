// SPDX-License-Identifier: Apache-2.0
#include "prepared/journal.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "checkpoint/scratch_folder.hpp"

namespace fewbit {
namespace {

using Tasks = std::vector<FinishedTask>;

const JobIdentity job{{"backend", "cpu_avx2"}, {"source model.safetensors", "12 bytes"}};

TEST(Journal, GivesBackWhatWasAppended) {
  const ScratchFolder folder;
  {
    auto journal = *Journal::open(folder / "j");
    EXPECT_FALSE(journal.read()->begun);
    ASSERT_TRUE(journal.begin(job));
    ASSERT_TRUE(journal.append(Tasks{{3, 0x1234}, {1, 0}}));
    ASSERT_TRUE(journal.append(Tasks{{7, ~std::uint64_t{0}}}));
  }
  const auto content = Journal::open(folder / "j")->read();
  ASSERT_TRUE(content) << content.error().message();
  EXPECT_TRUE(content->begun);
  EXPECT_EQ(content->identity, job);
  EXPECT_EQ(content->done, (Tasks{{3, 0x1234}, {1, 0}, {7, ~std::uint64_t{0}}}));
}

// Killed at any byte, it speaks of finished lines only, and goes on behind them.
TEST(Journal, CutAnywhereCountsWholeLinesOnly) {
  const ScratchFolder folder;
  {
    auto journal = *Journal::open(folder / "whole");
    ASSERT_TRUE(journal.begin(job));
    ASSERT_TRUE(journal.append(Tasks{{10, 5}, {20, 6}}));
  }
  const std::string text = file_content(folder / "whole");
  for (std::size_t size = 0; size <= text.size(); ++size) {
    folder.write("cut", text.substr(0, size));
    auto journal = *Journal::open(folder / "cut");
    const auto content = journal.read();
    ASSERT_TRUE(content) << size << ": " << content.error().message();
    EXPECT_EQ(content->begun, text.substr(0, size).find('\n') != std::string::npos);
    EXPECT_EQ(content->done.size(), size == text.size() ? 2U : size + 20 >= text.size() ? 1U : 0U);
    if (!content->begun) continue;
    ASSERT_TRUE(journal.resume());
    ASSERT_TRUE(journal.append(Tasks{{30, 7}}));
    EXPECT_EQ(journal.read()->done.back(), (FinishedTask{30, 7}));
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
  for (const char* line : {"-1 0123456789abcdef", "x 0123456789abcdef", "", "1", "1 2",
                           "1 0123456789abcdeg", "1 0123456789abcdef0", "1  123456789abcdef",
                           "1 -123456789abcdef", "99999999999999999999 0123456789abcdef"}) {
    folder.write("bad", head + "5 0123456789abcdef\n" + line + "\n");
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
