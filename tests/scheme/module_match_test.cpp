// SPDX-License-Identifier: Apache-2.0
#include "scheme/module_match.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fewbit {
namespace {

TEST(GlobMatch, IsPythonsFnmatch) {
  EXPECT_TRUE(glob_match("model.layers.3.mlp", "model.*.mlp"));  // * crosses dots
  EXPECT_TRUE(glob_match("abc", "a?c"));
  EXPECT_FALSE(glob_match("abc", "a?"));
  EXPECT_TRUE(glob_match("layers.7", "layers.[0-9]"));
  EXPECT_FALSE(glob_match("layers.7", "layers.[!0-9]"));
  EXPECT_TRUE(glob_match("layers.x", "layers.[!0-9]"));
  EXPECT_TRUE(glob_match("a]b", "a[]]b"));
  EXPECT_TRUE(glob_match("a[b", "a[b"));  // an unclosed set is itself
  EXPECT_TRUE(glob_match("", "*"));
  EXPECT_TRUE(glob_match("aXbXc", "a*b*c"));
  EXPECT_FALSE(glob_match("aXbXcd", "a*b*c"));
  EXPECT_FALSE(glob_match("A", "a"));
}

// Retrying after each * must not grow exponentially.
TEST(GlobMatch, ManyStarsStayFast) {
  const std::string text(2000, 'a');
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  EXPECT_FALSE(glob_match(text, pattern + "b"));
}

}  // namespace
}  // namespace fewbit
