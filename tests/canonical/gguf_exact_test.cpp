// SPDX-License-Identifier: Apache-2.0
#include "canonical/gguf_exact.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "canonical/random_gguf_blocks.hpp"

namespace fewbit {
namespace {

QuantizedTensor random_blocks(std::string_view name, std::int64_t n, std::int64_t k) {
  std::mt19937 random(5);
  return random_gguf_blocks(name, n, k, random);
}

std::vector<float> values(const QuantizedTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.n * tensor.k));
  const auto done = dequantize_rows(tensor, 0, out);
  EXPECT_TRUE(done) << done.error().message();
  return out;
}

TEST(GgufExact, KeepsEveryValue) {
  for (const char* name : {"Q4_0", "Q8_0", "MXFP4", "NVFP4", "Q2_0", "PQ2_0", "TQ2_0"}) {
    const QuantizedTensor blocks = random_blocks(name, 6, 768);
    const auto exact = gguf_exact(blocks);
    ASSERT_TRUE(exact) << exact.error().message();
    EXPECT_EQ(exact->scheme, gguf_exact_scheme(blocks.scheme)) << name;
    EXPECT_FALSE(exact->scheme.ggml_type);
    ASSERT_TRUE(check_quantized(*exact)) << check_quantized(*exact).error().message();
    const std::vector<float> want = values(blocks);
    const std::vector<float> got = values(*exact);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i], want[i]) << name << " element " << i;
    }
  }
}

// Factor and block scale, each as stored.
TEST(GgufExact, KeepsTheFactorBesideNvfp4) {
  QuantizedTensor blocks = random_blocks("NVFP4", 2, 64);
  blocks.global_scale = 0.3F;
  const auto exact = gguf_exact(blocks);
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->global_scale, 0.3F);
  EXPECT_TRUE(exact->scheme.scale->has_global);
}

TEST(GgufExact, RefusesAScaleThatE4m3DoesNotHave) {
  QuantizedTensor blocks = random_blocks("NVFP4", 2, 64);
  OwnedTensor codes = *allocate_tensor(DType::u8, blocks.codes.view.shape);
  codes.bytes[36] = std::byte{0xFF};
  blocks.codes = codes.tensor;
  const auto exact = gguf_exact(blocks);
  ASSERT_FALSE(exact);
  EXPECT_EQ(exact.error().message(), "an NVFP4 scale of 480, which e4m3 does not have");
}

TEST(GgufExact, LeavesOtherBlocksAndPlainWeightsAlone) {
  for (const char* name : {"Q4_1", "Q5_0", "Q4_K", "Q6_K", "IQ4_NL", "TQ1_0"}) {
    const QuantizedTensor blocks = random_blocks(name, 2, 256);
    EXPECT_FALSE(gguf_exact_scheme(blocks.scheme)) << name;
    const auto same = gguf_exact(blocks);
    ASSERT_TRUE(same);
    EXPECT_EQ(same->scheme, blocks.scheme) << name;
    EXPECT_EQ(same->codes.view.bytes.data(), blocks.codes.view.bytes.data()) << name;
  }
  EXPECT_FALSE(gguf_exact_scheme(plain_scheme(DType::bf16)));
}

}  // namespace
}  // namespace fewbit
