// SPDX-License-Identifier: Apache-2.0
#include "bench/usage.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fewbit::bench {
namespace {

std::optional<int> status_of(std::vector<std::string> words) {
  std::vector<char*> argv;
  words.insert(words.begin(), "program");
  for (std::string& word : words) argv.push_back(word.data());
  return ends_here(
      static_cast<int>(argv.size()), argv.data(),
      {.text = "program [--rounds N] [FOLDER]", .options = {"--rounds"}, .most_words = 1});
}

TEST(BenchUsage, HelpIsNeverAFolderAndIsNoFailure) {
  for (const char* word : {"--help", "-h"}) {
    EXPECT_EQ(status_of({word}), 0);
    EXPECT_EQ(status_of({"folder", word}), 0);
    EXPECT_EQ(status_of({"--rounds", "2", word}), 0);
  }
}

TEST(BenchUsage, WhatIsNotUnderstoodEndsTheProgram) {
  EXPECT_EQ(status_of({"--restart"}), 2);
  EXPECT_EQ(status_of({"--rounds"}), 2);
  EXPECT_EQ(status_of({"one", "two"}), 2);
}

TEST(BenchUsage, TheRestGoesOn) {
  EXPECT_EQ(status_of({}), std::nullopt);
  EXPECT_EQ(status_of({"folder", "--rounds", "3"}), std::nullopt);
}

}  // namespace
}  // namespace fewbit::bench
