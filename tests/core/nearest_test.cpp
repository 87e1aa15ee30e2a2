// SPDX-License-Identifier: Apache-2.0
#include "core/nearest.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace fewbit {
namespace {

using Names = std::vector<std::string>;

TEST(Nearest, FindsBeginningsThenFewestDifferences) {
  const Names names = {"check", "inspect", "explain", "--device"};
  EXPECT_EQ(nearest("inspcet", names), "inspect");  // two that changed places
  EXPECT_EQ(nearest("ins", names), "inspect");
  EXPECT_EQ(nearest("EXPLAN", names), "explain");
  EXPECT_EQ(nearest("-devic", names), "--device");
  EXPECT_EQ(nearest("frob", names), "");
  EXPECT_EQ(nearest("", names), "");
  EXPECT_EQ(nearest(std::string(1000, 'c'), names), "");
}

TEST(Nearest, ListsThoseThatAreEquallyNear) {
  const Names names = {"layers.0.gate", "layers.1.gate", "layers.10.gate", "layers.2.gate", "norm"};
  EXPECT_EQ(nearest_names("layers.9.gate", names, 2), Names({"layers.0.gate", "layers.1.gate"}));
  EXPECT_EQ(nearest_names("layers.10.gaet", names, 3), Names({"layers.10.gate"}));
  EXPECT_EQ(did_you_mean("layers.9.gate", names, 3),
            "; did you mean layers.0.gate, layers.1.gate or layers.2.gate?");
  EXPECT_EQ(did_you_mean("frob", names), "");
}

// The whole table of differences between two short words, by the definition.
std::size_t slow_distance(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const std::string a1 = a.substr(1);
  const std::string b1 = b.substr(1);
  std::size_t least = std::min(slow_distance(a1, b), slow_distance(a, b1)) + 1;
  least = std::min(least, slow_distance(a1, b1) + (a[0] == b[0] ? 0 : 1));
  if (a1.empty() || b1.empty() || a[0] != b1[0] || a1[0] != b[0]) return least;
  return std::min(least, slow_distance(a1.substr(1), b1.substr(1)) + 1);
}

TEST(Nearest, AgreesWithTheDefinitionForAllShortWords) {
  Names words;
  for (int code = 0; code < 81; ++code) {
    std::string word;
    for (int i = 0, rest = code; i < 4; ++i, rest /= 3) word += static_cast<char>('a' + rest % 3);
    words.push_back(word);
  }
  for (const std::string& asked : words) {
    for (const std::string& known : words) {
      const Names one = {known};
      EXPECT_EQ(!nearest(asked, one).empty(), slow_distance(asked, known) <= 1) << asked << known;
    }
  }
}

}  // namespace
}  // namespace fewbit
