// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_container.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/gguf_metadata.hpp"
#include "checkpoint/raw_gguf.hpp"
#include "checkpoint/raw_safetensors.hpp"
#include "checkpoint/scratch_folder.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Error open_error(const std::filesystem::path& path) {
  const auto checkpoint = Checkpoint::open(path);
  EXPECT_FALSE(checkpoint);
  return checkpoint ? Error{} : checkpoint.error();
}

struct SplitNumbers {
  std::uint32_t no;
  std::uint32_t count;
  std::uint32_t tensors;
};

// One part with one I8 [4] tensor of that name, filled with its first letter.
std::string part(std::string_view name, const SplitNumbers& split) {
  RawGguf raw;
  raw.kv("split.no", 2, little_endian(split.no, 2))
      .kv("split.count", 2, little_endian(split.count, 2));
  raw.kv("split.tensors.count", 5, little_endian(split.tensors, 4));
  if (split.no == 0) raw.kv_string("general.architecture", "llama");
  return raw.tensor(name, {4}, 24, 0).data(std::string(4, name.front())).build();
}

void write_three_parts(const ScratchFolder& folder) {
  folder.write("m-00001-of-00003.gguf", part("b", {0, 3, 3}));
  folder.write("m-00002-of-00003.gguf", part("c", {1, 3, 3}));
  folder.write("m-00003-of-00003.gguf", part("a", {2, 3, 3}));
}

std::string text_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.view.bytes.data()), tensor.view.bytes.size()};
}

TEST(GgufContainer, ASplitModelIsOpenedByItsFolderOrAnyOfItsParts) {
  const ScratchFolder folder;
  write_three_parts(folder);
  for (const auto& path :
       {folder.path(), folder / "m-00001-of-00003.gguf", folder / "m-00003-of-00003.gguf"}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    ASSERT_EQ(checkpoint->tensors().size(), 3U);
    EXPECT_EQ(checkpoint->tensors()[0].name, "a");
    for (const TensorInfo& info : checkpoint->tensors()) {
      EXPECT_EQ(text_of(checkpoint->tensor(info)), std::string(4, info.name.front()));
    }
    EXPECT_EQ(checkpoint->shards().size(), 3U);
    EXPECT_EQ(checkpoint->total_bytes(), 12U);
    ASSERT_NE(checkpoint->gguf_metadata(), nullptr);
    EXPECT_EQ(checkpoint->gguf_metadata()->architecture(), "llama");  // of the first part
    EXPECT_EQ(checkpoint->metadata().at("split.count"), "3");
  }
}

TEST(GgufContainer, AFileIsKnownByItsContentWhateverItsName) {
  const ScratchFolder folder;
  const auto path =
      folder.write("model.bin", RawGguf().tensor("a", {4}, 24, 0).data("aaaa").build());
  const auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_NE(checkpoint->find("a"), nullptr);
  folder.write("other.gguf", raw_safetensors("{}"));
  EXPECT_THAT(open_error(folder / "other.gguf").what, HasSubstr("magic"));
}

// The metadata lies in the mapped file, which has to outlive it.
TEST(GgufContainer, MetadataStaysReadable) {
  const ScratchFolder folder;
  const auto path = folder.write("m.gguf", RawGguf().kv_string("general.name", "a name").build());
  auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  const Checkpoint copy = *checkpoint;
  checkpoint = Error{};
  std::filesystem::remove(path);
  EXPECT_EQ(copy.gguf_metadata()->find("general.name")->as_string(), "a name");
}

TEST(GgufContainer, MissingPartsAreNamed) {
  const ScratchFolder folder;
  write_three_parts(folder);
  std::filesystem::remove(folder / "m-00002-of-00003.gguf");
  for (const auto& path : {folder.path(), folder / "m-00003-of-00003.gguf"}) {
    const Error error = open_error(path);
    EXPECT_EQ(error.code, ErrorCode::not_found);
    EXPECT_THAT(error.what, HasSubstr("split-part-missing: 1 of 3 parts do not exist: "
                                      "\"m-00002-of-00003.gguf\""));
  }
}

TEST(GgufContainer, PartsThatContradictTheirNamesAreRefused) {
  struct Case {
    SplitNumbers second;
    std::string what;
  };
  const Case cases[] = {
      {{2, 2, 2}, "split.no is 2, expected 1, by the file's name"},
      {{1, 3, 2}, "split.count is 3, expected 2, by the file's name"},
      {{1, 2, 9}, "split.tensors.count is 9, expected 2, the tensors of all parts"}};
  for (const Case& c : cases) {
    const ScratchFolder folder;
    folder.write("m-00001-of-00002.gguf", part("a", {0, 2, 2}));
    folder.write("m-00002-of-00002.gguf", part("b", c.second));
    const Error error = open_error(folder.path());
    EXPECT_EQ(error.code, ErrorCode::inconsistent);
    EXPECT_THAT(error.what, HasSubstr(c.what));
    EXPECT_THAT(error.where, HasSubstr("m-00002-of-00002.gguf"));
  }
}

TEST(GgufContainer, OnePartUnderAnotherNameIsRefused) {
  const ScratchFolder folder;
  const auto path = folder.write("renamed.gguf", part("a", {0, 2, 2}));
  EXPECT_THAT(open_error(path).what, HasSubstr("split.count is 2, expected 1"));
}

TEST(GgufContainer, ATensorInTwoPartsIsRefused) {
  const ScratchFolder folder;
  folder.write("m-00001-of-00002.gguf", part("a", {0, 2, 2}));
  folder.write("m-00002-of-00002.gguf", part("a", {1, 2, 2}));
  EXPECT_THAT(open_error(folder.path()).what,
              AllOf(HasSubstr("tensor-twice"), HasSubstr("m-00002-of-00002.gguf")));
}

TEST(GgufContainer, SeveralModelsInOneFolderAreNotGuessed) {
  const ScratchFolder folder;
  write_three_parts(folder);
  folder.write("mmproj.gguf", RawGguf().build());
  const Error error = open_error(folder.path());
  EXPECT_EQ(error.code, ErrorCode::not_found);
  EXPECT_THAT(error.what, AllOf(HasSubstr("2 GGUF models"), HasSubstr("mmproj.gguf")));
}

TEST(GgufContainer, SplitNamesAreReadStrictly) {
  const auto split = parse_gguf_split_name("a-b-00002-of-00010.gguf");
  ASSERT_TRUE(split);
  EXPECT_EQ(split->prefix, "a-b");
  EXPECT_EQ(split->number, 2U);
  EXPECT_EQ(split->count, 10U);
  EXPECT_EQ(gguf_split_file_name(*split), "a-b-00002-of-00010.gguf");
  for (const char* name :
       {"a-00000-of-00002.gguf", "a-00003-of-00002.gguf", "a-1-of-00002.gguf", "a-00001-of-2.gguf",
        "a00001-of-00002.gguf", "00001-of-00002.gguf", "a-00001-of-00002.bin",
        "a-0000x-of-00002.gguf", "a-+0001-of-00002.gguf", ".gguf", ""}) {
    EXPECT_FALSE(parse_gguf_split_name(name)) << name;
  }
}

}  // namespace
}  // namespace fewbit
