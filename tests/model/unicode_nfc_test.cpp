// SPDX-License-Identifier: Apache-2.0
#include "model/unicode_nfc.hpp"

#include <gtest/gtest.h>

#include <random>

#include "model/utf8.hpp"

namespace fewbit {
namespace {

std::string text_of(std::initializer_list<char32_t> codes) {
  std::string text;
  for (const char32_t code : codes) append_utf8(code, text);
  return text;
}

// Examples of Annex 15 and of its conformance tests.
TEST(UnicodeNfc, ComposesAsTheStandardShows) {
  EXPECT_EQ(normalize_nfc("plain ASCII"), "plain ASCII");
  EXPECT_EQ(normalize_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(normalize_nfc("\u212b"), "\u00c5");              // ANGSTROM SIGN: a singleton
  EXPECT_EQ(normalize_nfc("\u1e9b\u0323"), "\u1e9b\u0323");  // compatibility forms stay
  EXPECT_EQ(normalize_nfc("\ufb01"), "\ufb01");
  EXPECT_EQ(normalize_nfc("s\u0307\u0323"), "\u1e69");  // marks are put in order first
  EXPECT_EQ(normalize_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(normalize_nfc("a\u0315\u0300\u05ae\u0300b"), "\u00e0\u05ae\u0300\u0315b");
  EXPECT_EQ(normalize_nfc("\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(normalize_nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(normalize_nfc("\u09c7\u09be"), "\u09cb");                    // two starters
  EXPECT_EQ(normalize_nfc("\u09c7\u0334\u09be"), "\u09c7\u0334\u09be");  // blocked
  EXPECT_EQ(normalize_nfc("\u0301e"), "\u0301e");
  EXPECT_EQ(normalize_nfc("\U0002f800"), "\u4e3d");
}

TEST(UnicodeNfc, HangulIsComposedByArithmetic) {
  EXPECT_EQ(normalize_nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(normalize_nfc("\u1112\u1161"), "\ud558");
  EXPECT_EQ(normalize_nfc("\ud558\u11ab"), "\ud55c");
  EXPECT_EQ(normalize_nfc("\ud55c\u11ab"), "\ud55c\u11ab");
  EXPECT_EQ(normalize_nfc("\ud558\u11a7"), "\ud558\u11a7");
}

TEST(UnicodeNfc, EveryEntryOfTheTablesHolds) {
  ASSERT_GT(unicode_nfc_compositions.size(), 900U);
  for (const Decomposition& entry : unicode_nfc_compositions) {
    const std::string composed = text_of({entry.code});
    EXPECT_EQ(normalize_nfc(composed), composed);
    EXPECT_EQ(normalize_nfc(text_of({entry.first, entry.second})), composed);
  }
  ASSERT_GT(unicode_nfc_exclusions.size(), 1000U);
  for (const Decomposition& entry : unicode_nfc_exclusions) {
    const std::string decomposed =
        entry.second == 0 ? text_of({entry.first}) : text_of({entry.first, entry.second});
    EXPECT_EQ(normalize_nfc(text_of({entry.code})), normalize_nfc(decomposed));
    EXPECT_NE(normalize_nfc(text_of({entry.code})), text_of({entry.code}));
  }
}

TEST(UnicodeNfc, NormalizedTextStaysAsItIs) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      const auto& entry = unicode_nfc_compositions[random() % unicode_nfc_compositions.size()];
      const auto& range = unicode_nfc_classes[random() % unicode_nfc_classes.size()];
      append_utf8(std::array{entry.code, entry.first, entry.second, range.first}[random() % 4],
                  text);
    }
    const std::string once = normalize_nfc(text);
    EXPECT_EQ(normalize_nfc(once), once);
  }
}

// A million marks on one letter: sorted in O(n log n).
TEST(UnicodeNfc, ManyMarksEndQuickly) {
  std::string text = "q";
  for (int i = 0; i < 500000; ++i) text += "\u0307\u0323";
  const std::string normalized = normalize_nfc(text);
  EXPECT_EQ(normalized.size(), text.size());
  EXPECT_TRUE(normalized.starts_with("q\u0323\u0323"));
}

}  // namespace
}  // namespace fewbit
