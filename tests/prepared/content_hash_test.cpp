// SPDX-License-Identifier: Apache-2.0
#include "prepared/content_hash.hpp"

#include <gtest/gtest.h>

#include <string>

#include "checkpoint/scratch_folder.hpp"

namespace fewbit {
namespace {

std::string hash_of(std::string_view text) { return hash_bytes(std::as_bytes(std::span(text))); }

// The published value of the empty input, and what `xxh128sum` prints.
TEST(ContentHash, IsXxh3Of128BitsAsItsToolPrintsIt) {
  EXPECT_EQ(hash_of(""), "99aa06d3014798d86001c324468d497f");
}

TEST(ContentHash, OfAFileIsThatOfItsBytesWhateverItsSize) {
  const ScratchFolder folder;
  for (const std::size_t size : {0UL, 1UL, 4095UL, (4UL << 20) - 1, (4UL << 20) + 1, 9UL << 20}) {
    std::string content(size, '\0');
    for (std::size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 31 >> 3);
    const auto path = folder.write("file", content);
    const auto hash = hash_file(path);
    ASSERT_TRUE(hash) << hash.error().message();
    EXPECT_EQ(*hash, hash_of(content)) << size;
  }
}

TEST(ContentHash, StopsWhenToldTo) {
  const ScratchFolder folder;
  const auto path = folder.write("file", std::string(std::size_t{9} << 20, 'x'));
  const auto hash = hash_file(path, [](std::uint64_t) { return false; });
  ASSERT_FALSE(hash);
  EXPECT_EQ(hash.error().code, ErrorCode::cancelled);
  EXPECT_NE(hash.error().message().find("4194304 of 9437184 bytes"), std::string::npos);
}

}  // namespace
}  // namespace fewbit
