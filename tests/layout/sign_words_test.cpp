// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "layout/element_mover.hpp"
#include "layout/marlin_codes.hpp"
#include "layout/pack_fast_words.hpp"

namespace fewbit {
namespace {

struct Expected {
  std::vector<std::uint32_t> words;
  std::int64_t lost = 0;
};

// Code by code, by the rule of the kernels that read them.
Expected expected(const std::vector<std::uint32_t>& source, const std::vector<std::uint32_t>& zeros,
                  bool as_vllm) {
  Expected all;
  for (std::size_t i = 0; i < source.size(); ++i) {
    std::uint32_t word = 0;
    for (unsigned bit = 0; bit < 32; bit += 4) {
      const unsigned code = source[i] >> bit & 15U;
      const unsigned zero = zeros[i] >> bit & 15U;
      const auto exact = marlin_fp8_code(code, zero);
      word |= (as_vllm ? marlin_fp8_code_as_vllm(code, zero) : exact.value_or(0)) << bit;
      if (!as_vllm && !exact) ++all.lost;
    }
    all.words.push_back(word);
  }
  return all;
}

TEST(SignWordsTest, EveryVariantFollowsTheRuleOfTheCodes) {
  std::mt19937 random(7);
  for (const IsaLevel level : {IsaLevel::generic, IsaLevel::avx2, IsaLevel::avx512}) {
    if (level > packing_isa()) continue;
    for (int round = 0; round < 400; ++round) {
      const std::size_t count = 1 + random() % 80;
      const bool near = round % 2 == 0;  // to the middle: every code is held
      std::vector<std::uint32_t> source(count);
      std::vector<std::uint32_t> zeros(count);
      for (auto& word : source) word = static_cast<std::uint32_t>(random());
      for (auto& word : zeros) word = near ? 0x88888888U : static_cast<std::uint32_t>(random());
      for (const bool as_vllm : {false, true}) {
        const Expected want = expected(source, zeros, as_vllm);
        std::vector<std::uint32_t> got(count + 1, 0xeeeeeeeeU);
        const std::int64_t lost =
            sign_words(level)({.source = reinterpret_cast<const std::byte*>(source.data()),
                               .out = got.data(),
                               .words = static_cast<std::int64_t>(count),
                               .zeros = zeros.data(),
                               .as_vllm = as_vllm});
        EXPECT_EQ(lost, want.lost);
        EXPECT_EQ(got.back(), 0xeeeeeeeeU);
        got.pop_back();
        ASSERT_EQ(got, want.words) << isa_name(level) << ", " << count << " words";
      }
    }
  }
}

}  // namespace
}  // namespace fewbit
