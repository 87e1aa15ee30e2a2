// SPDX-License-Identifier: Apache-2.0
// Types of GGUF tensors whose blocks have several extents, or none that is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "checkpoint/parsed_gguf.hpp"
#include "checkpoint/raw_gguf.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

TEST(Gguf, Type42IsReadWithTheExtentThatReproducesTheOffsets) {
  for (const std::uint64_t block : {64U, 128U}) {
    const std::uint64_t bytes = 256 / block * (block == 64 ? 18 : 34);
    RawGguf raw;
    raw.tensor("a", {256, 8}, 42, 0).tensor("b", {256, 8}, 42, 8 * bytes);
    const std::string file = raw.data(std::string(16 * bytes, 'x')).build();
    const auto header = parse(file);
    ASSERT_TRUE(header) << header.error().message();
    EXPECT_EQ(header->tensors[1].blocks->block_elements, static_cast<std::int64_t>(block));
    EXPECT_EQ(header->tensors[1].bytes, 8 * bytes);
    EXPECT_TRUE(header->findings.empty());
  }
}

TEST(Gguf, Type40IsNvfp4OrTheFirstQ1_0) {
  RawGguf raw;
  raw.tensor("a", {256, 8}, 40, 0).tensor("b", {64}, 40, 8 * 48);
  const auto q1_0 = parse(RawGguf(raw).data(std::string(8 * 48 + 12, 'x')).build());
  ASSERT_TRUE(q1_0) << q1_0.error().message();
  EXPECT_EQ(q1_0->tensors[0].blocks->block_bytes, 6);
  const auto nvfp4 = parse(RawGguf().tensor("a", {256}, 40, 0).data(std::string(144, 'x')).build());
  ASSERT_TRUE(nvfp4) << nvfp4.error().message();
  EXPECT_EQ(nvfp4->tensors[0].blocks->block_bytes, 36);
}

// A single small tensor can fit both ways; that is said, and mainline's reading is taken.
TEST(Gguf, TwoFittingExtentsAreAFinding) {
  const std::string file = RawGguf().tensor("a", {128}, 42, 0).data(std::string(64, 'x')).build();
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->tensors[0].blocks->block_elements, 64);
  ASSERT_EQ(header->findings.size(), 1U);
  EXPECT_EQ(header->findings[0].rule, "gguf-type-ambiguous");
  EXPECT_THAT(header->findings[0].found, HasSubstr("128 elements in 34 bytes"));
  EXPECT_THAT(header->findings[0].expected, HasSubstr("64 elements in 18 bytes"));
}

TEST(Gguf, UnknownAndRemovedTypesTakeTheBytesUpToTheNextTensor) {
  for (const std::uint32_t type : {99U, 4U, 31U}) {
    RawGguf raw;
    raw.tensor("a", {7, 3}, type, 0).tensor("b", {4}, 24, 96).tensor("z", {5}, type, 128);
    const std::string file = raw.data(std::string(140, 'x')).build();
    const auto header = parse(file);
    ASSERT_TRUE(header) << header.error().message();
    const TensorInfo& a = header->tensors[0];
    EXPECT_EQ(a.dtype, DType::u8);
    EXPECT_EQ(a.shape, (Shape{96}));
    EXPECT_EQ(a.bytes, 96U);
    EXPECT_EQ(a.blocks, (BlockFormat{static_cast<std::int32_t>(type), 0, 0, {3, 7}}));
    EXPECT_EQ(header->tensors[2].bytes, 12U);  // to the end of the file
  }
}

// The last tensor's size has no next offset to check it: the end of the file decides.
TEST(Gguf, AnExtentThatUsesTheWholeFileIsPreferred) {
  for (const std::uint64_t bytes : {64 * 72U, 64 * 68U}) {
    const auto header =
        parse(RawGguf().tensor("a", {256, 64}, 42, 0).data(std::string(bytes, 'x')).build());
    ASSERT_TRUE(header) << header.error().message();
    EXPECT_EQ(header->tensors[0].bytes, bytes);
    EXPECT_TRUE(header->findings.empty());
  }
}

}  // namespace
}  // namespace fewbit
