// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/gguf_metadata.hpp"
#include "checkpoint/raw_gguf.hpp"
#include "checkpoint/scratch_folder.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GgufTensorSpec spec(std::string name, std::string_view type, Shape shape) {
  return {std::move(name), *find_gguf_type(type), std::move(shape)};
}

std::vector<GgufTensorSpec> three_specs() {
  return {spec("b", "Q4_0", {2, 64}), spec("a", "F32", {3}), spec("c", "TQ2_0", {1, 2, 256})};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Tensor data of the right size that tells the tensors apart.
std::string data_of(const TensorInfo& info) {
  std::string data;
  for (std::uint64_t i = 0; i < info.bytes; ++i) {
    data += static_cast<char>(i * 5 + static_cast<unsigned char>(info.name.front()));
  }
  return data;
}

constexpr std::uint64_t sizes[] = {72, 12, 132};  // of three_specs()

void write_all(GgufWriter& writer) {
  const std::vector<GgufTensorSpec> specs = three_specs();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    TensorInfo info;
    info.name = specs[i].name;
    info.bytes = sizes[i];
    const auto done = writer.write(info.name, bytes_of(data_of(info)));
    ASSERT_TRUE(done) << done.error().message();
  }
}

std::vector<std::string> file_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void expect_three_tensors(const Checkpoint& checkpoint) {
  ASSERT_EQ(checkpoint.tensors().size(), 3U);
  EXPECT_EQ(checkpoint.find("a")->dtype, DType::f32);
  EXPECT_EQ(checkpoint.find("b")->blocks, (BlockFormat{2, 32, 18, {2, 64}}));
  EXPECT_EQ(checkpoint.find("c")->blocks, (BlockFormat{35, 256, 66, {1, 2, 256}}));
  for (const TensorInfo& info : checkpoint.tensors()) {
    const auto bytes = checkpoint.tensor(info).view.bytes;
    const std::string want = data_of(info);
    EXPECT_TRUE(
        std::equal(bytes.begin(), bytes.end(), bytes_of(want).begin(), bytes_of(want).end()))
        << info.name;
  }
  EXPECT_TRUE(checkpoint.findings().empty());
}

TEST(GgufWriter, WhatIsWrittenIsReadBack) {
  const ScratchFolder folder;
  const std::vector<std::string> tokens = {"<s>", "", "\xc3\xa4"};
  const std::vector<std::int32_t> lengths = {1, -2};
  const std::vector<GgufPair> pairs = {
      gguf_pair("general.architecture", std::string("qwen3moe")),
      gguf_pair("u8", std::uint8_t{200}),
      gguf_pair("i8", std::int8_t{-3}),
      gguf_pair("u16", std::uint16_t{60000}),
      gguf_pair("u32", std::uint32_t{4000000000}),
      gguf_pair("i64", std::int64_t{-5}),
      gguf_pair("u64", std::uint64_t{6}),
      gguf_pair("f32", 0.5F),
      gguf_pair("f64", 0.1),
      gguf_pair("yes", true),
      gguf_array("tokens", std::span<const std::string>(tokens)),
      gguf_array("lengths", std::span<const std::int32_t>(lengths))};
  for (const std::uint64_t alignment : {8U, 32U, 4096U}) {
    const auto path = folder / (std::to_string(alignment) + ".gguf");
    auto writer = GgufWriter::create(path, pairs, three_specs(), {.alignment = alignment});
    ASSERT_TRUE(writer) << writer.error().message();
    write_all(*writer);
    EXPECT_FALSE(std::filesystem::exists(path));
    const auto done = writer->finish();
    ASSERT_TRUE(done) << done.error().message();
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    expect_three_tensors(*checkpoint);
    for (const TensorInfo& info : checkpoint->tensors())
      EXPECT_EQ(info.file_offset % alignment, 0U);
    const GgufMetadata& metadata = *checkpoint->gguf_metadata();
    EXPECT_EQ(metadata.entries().size(), pairs.size() + (alignment == 32 ? 0 : 1));
    EXPECT_EQ(metadata.find("u8")->kind(), GgufKind::u8);
    EXPECT_EQ(metadata.find("u8")->as_int64(), 200);
    EXPECT_EQ(metadata.find("i8")->as_int64(), -3);
    EXPECT_EQ(metadata.find("u16")->as_int64(), 60000);
    EXPECT_EQ(metadata.find("u32")->as_int64(), 4000000000);
    EXPECT_EQ(metadata.find("i64")->as_int64(), -5);
    EXPECT_EQ(metadata.find("u64")->kind(), GgufKind::u64);
    EXPECT_EQ(metadata.find("f32")->as_double(), 0.5);
    EXPECT_EQ(metadata.find("f64")->as_double(), 0.1);
    EXPECT_EQ(metadata.find("yes")->as_bool(), true);
    EXPECT_THAT(metadata.find("tokens")->strings(), ElementsAre("<s>", "", "\xc3\xa4"));
    EXPECT_EQ(metadata.find("lengths")->int64_at(1), -2);
  }
}

TEST(GgufWriter, PartsHoldNoMoreThanTheirLimitAndFormOneModel) {
  const ScratchFolder folder;
  const auto path = folder / "m.gguf";
  const std::vector<GgufPair> pairs = {gguf_pair("general.architecture", std::string("llama"))};
  // 96 + 32 bytes fit together, the 160 of the last tensor pass the limit alone.
  auto writer = GgufWriter::create(path, pairs, three_specs(), {.max_part_bytes = 128});
  ASSERT_TRUE(writer) << writer.error().message();
  write_all(*writer);
  const auto done = writer->finish();
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_THAT(file_names(folder.path()),
              ElementsAre("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  expect_three_tensors(*checkpoint);
  EXPECT_EQ(checkpoint->find("c")->shard, 1);
  EXPECT_EQ(checkpoint->gguf_metadata()->find("split.tensors.count")->as_int64(), 3);
}

TEST(GgufWriter, PiecesMayComeInAnyOrderFromSeveralThreads) {
  const ScratchFolder folder;
  auto writer = GgufWriter::create(folder / "m.gguf", {}, three_specs());
  ASSERT_TRUE(writer) << writer.error().message();
  TensorInfo info;
  info.name = "c";
  info.bytes = 132;
  const std::string data = data_of(info);
  std::vector<std::thread> threads;
  for (std::uint64_t piece = 0; piece < 4; ++piece) {
    threads.emplace_back([&, piece] {
      EXPECT_TRUE(writer->write("c", bytes_of(data).subspan(33 * piece, 33), 33 * piece));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto early = writer->finish();
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ErrorCode::inconsistent);
  EXPECT_THAT(early.error().what, HasSubstr("2 of 3 tensors were not written in full: \"b\" (0 of "
                                            "72 bytes, the first missing is 0)"));
  write_all(*writer);
  EXPECT_TRUE(writer->finish());
  EXPECT_FALSE(writer->finish());  // only once
}

TEST(GgufWriter, WithoutFinishNothingIsLeft) {
  const ScratchFolder folder;
  {
    auto writer = GgufWriter::create(folder / "m.gguf", {}, three_specs(), {.max_part_bytes = 1});
    ASSERT_TRUE(writer) << writer.error().message();
    EXPECT_EQ(file_names(folder.path()).size(), 3U);
    write_all(*writer);
  }
  EXPECT_TRUE(file_names(folder.path()).empty());
}

TEST(GgufWriter, PairsAreCopiedAsTheyWereReadFromAnyVersion) {
  for (const std::uint32_t version : {1U, 3U}) {
    const ScratchFolder folder;
    RawGguf raw(version);
    raw.kv_string("s", "text").kv_u32("u", 7).kv("b", 7, "\x01");
    raw.kv("names", 9, little_endian(8, 4) + raw.length(2) + raw.string("x") + raw.string("yz"));
    raw.kv("numbers", 9, little_endian(3, 4) + raw.length(2) + little_endian(0x20001, 4));
    const auto source = Checkpoint::open(folder.write("in.gguf", raw.build()));
    ASSERT_TRUE(source) << source.error().message();
    std::vector<GgufPair> pairs;
    for (const auto& entry : source->gguf_metadata()->entries()) {
      pairs.push_back(gguf_copy(std::string(entry.key), entry.value));
    }
    auto writer = GgufWriter::create(folder / "out.gguf", pairs, {});
    ASSERT_TRUE(writer) << writer.error().message();
    ASSERT_TRUE(writer->finish());
    const auto copy = Checkpoint::open(folder / "out.gguf");
    ASSERT_TRUE(copy) << copy.error().message();
    const auto& entries = copy->gguf_metadata()->entries();
    ASSERT_EQ(entries.size(), 5U);
    for (const auto& entry : source->gguf_metadata()->entries()) {
      const GgufValue* value = copy->gguf_metadata()->find(entry.key);
      ASSERT_NE(value, nullptr) << entry.key;
      EXPECT_EQ(value->kind(), entry.value.kind());
      EXPECT_EQ(value->is_array(), entry.value.is_array());
      EXPECT_EQ(value->text(), entry.value.text());
    }
  }
}

TEST(GgufWriter, WhatCannotBeWrittenIsRefused) {
  struct Case {
    std::string file;
    std::vector<GgufPair> pairs;
    std::vector<GgufTensorSpec> tensors;
    GgufWriterOptions options;
    std::string message;
  };
  const auto t = [](std::string_view type, Shape shape) {
    return std::vector<GgufTensorSpec>{spec("t", type, std::move(shape))};
  };
  const std::vector<Case> cases = {
      {"m.bin", {}, {}, {}, "expected a file name like \"model.gguf\""},
      {".gguf", {}, {}, {}, "expected a file name like"},
      {"m-00001-of-00002.gguf", {}, {}, {}, "expected a file name like"},
      {"m.gguf", {}, {}, {.alignment = 24}, "alignment: 24, expected a power of two"},
      {"m.gguf", {gguf_pair("", 1)}, {}, {}, "a name of 0 bytes, expected 1 to 65535"},
      {"m.gguf", {gguf_pair("k", 1), gguf_pair("k", 1)}, {}, {}, "key \"k\": declared twice"},
      {"m.gguf", {gguf_pair("split.no", 1)}, {}, {}, "the writer sets it itself"},
      {"m.gguf", {gguf_pair("general.alignment", 1)}, {}, {}, "the writer sets it itself"},
      {"m.gguf", {}, {spec("\xff", "F32", {1})}, {}, "no UTF-8"},
      {"m.gguf",
       {},
       {spec(std::string(64, 'n'), "F32", {1})},
       {},
       "a name of 64 bytes, expected 1 "
       "to 63"},
      {"m.gguf", {}, {spec("t", "F32", {1}), spec("t", "F16", {1})}, {}, "declared twice"},
      {"m.gguf", {}, t("F32", {}), {}, "0 dimensions, expected 1 to 4"},
      {"m.gguf", {}, t("F32", {1, 1, 1, 1, 1}), {}, "5 dimensions, expected 1 to 4"},
      {"m.gguf", {}, t("F32", {3, 0}), {}, "dimension 0, expected at least 1"},
      {"m.gguf", {}, t("F32", {1LL << 62, 4}), {}, "tensor \"t\""},
      {"m.gguf", {}, t("F32", {1LL << 62}), {}, "overflow: 4611686018427387904 blocks of 4 bytes"},
      {"m.gguf", {}, t("Q4_K", {2, 128}), {}, "rows of 128 elements, but a block of Q4_K has 256"},
      {"m.gguf", {}, t("Q4_2 (removed)", {32}), {}, "has no extent"},
  };
  for (const Case& c : cases) {
    const ScratchFolder folder;
    const auto writer = GgufWriter::create(folder / c.file, c.pairs, c.tensors, c.options);
    ASSERT_FALSE(writer) << c.message;
    EXPECT_THAT(writer.error().message(), HasSubstr(c.message));
    EXPECT_TRUE(file_names(folder.path()).empty());
  }
  const ScratchFolder folder;
  folder.write("m.gguf", "mine");
  const auto writer = GgufWriter::create(folder / "m.gguf", {}, three_specs());
  ASSERT_FALSE(writer);
  EXPECT_THAT(writer.error().message(), HasSubstr("m.gguf: exists already"));
  EXPECT_EQ(file_content(folder / "m.gguf"), "mine");
}

TEST(GgufWriter, BytesBeyondATensorAreRefused) {
  const ScratchFolder folder;
  auto writer = GgufWriter::create(folder / "m.gguf", {}, three_specs());
  ASSERT_TRUE(writer) << writer.error().message();
  const auto beyond = writer->write("a", bytes_of("1234567890123"));
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().what, HasSubstr("13 bytes at 0 do not fit into f32 [3] of 12 bytes"));
  EXPECT_EQ(writer->write("z", bytes_of("1")).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace fewbit
