// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/json.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/raw_safetensors.hpp"
#include "checkpoint/scratch_folder.hpp"
#include "fewbit/checkpoint.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<std::string> listing(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// Different for each tensor and byte.
std::string pattern(std::string_view name, std::uint64_t bytes) {
  std::string data(bytes, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<char>(i * 31 + static_cast<unsigned char>(name.back()) + i / 256);
  }
  return data;
}

std::uint64_t size_of(const TensorSpec& spec) { return *tensor_bytes(spec.dtype, spec.shape); }

Result<void> write_patterns(CheckpointWriter& writer, const std::vector<TensorSpec>& specs) {
  for (const TensorSpec& spec : specs) {
    FEWBIT_TRY(writer.write(spec.name, as_bytes(pattern(spec.name, size_of(spec)))));
  }
  return writer.finish();
}

void expect_reads_back(const std::filesystem::path& path, const std::vector<TensorSpec>& specs) {
  const auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_TRUE(checkpoint->findings().empty());
  EXPECT_EQ(checkpoint->tensors().size(), specs.size());
  for (const TensorSpec& spec : specs) {
    const auto tensor = checkpoint->tensor(spec.name);
    ASSERT_TRUE(tensor) << tensor.error().message();
    EXPECT_EQ(tensor->view.dtype, spec.dtype) << spec.name;
    EXPECT_EQ(tensor->view.shape, spec.shape) << spec.name;
    const auto bytes = tensor->view.bytes;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
              pattern(spec.name, size_of(spec)))
        << spec.name;
  }
}

std::vector<TensorSpec> every_type() {
  std::vector<TensorSpec> specs;
  for (const DType dtype :
       {DType::f64,     DType::f32,     DType::f16,         DType::bf16,        DType::f8_e4m3,
        DType::f8_e5m2, DType::f8_e8m0, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz, DType::f6_e2m3,
        DType::f6_e3m2, DType::f4_e2m1, DType::boolean,     DType::c64,         DType::i64,
        DType::u64,     DType::i32,     DType::u32,         DType::i16,         DType::u16,
        DType::i8,      DType::u8}) {
    specs.push_back({"t." + std::string(dtype_name(dtype)), dtype, {3, 8}});
  }
  specs.push_back({"scalar", DType::f32, {}});
  specs.push_back({"empty", DType::bf16, {4, 0, 2}});
  specs.push_back({"\xc3\xa9 \"quoted\"\n", DType::u8, {5}});
  return specs;
}

TEST(CheckpointWriter, EveryTypeAndOddShapesReadBackFromOneFile) {
  ScratchFolder folder;
  const auto specs = every_type();
  auto writer = CheckpointWriter::create(folder / "out", specs);
  ASSERT_TRUE(writer) << writer.error().message();
  const auto written = write_patterns(*writer, specs);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_THAT(listing(folder.path()), ElementsAre("out"));
  EXPECT_THAT(listing(folder / "out"), ElementsAre("model.safetensors"));
  expect_reads_back(folder / "out", specs);
}

TEST(CheckpointWriter, ShardsKeepToTheirSizeAndAreIndexed) {
  ScratchFolder folder;
  const auto specs = every_type();
  WriterOptions options;
  options.max_shard_bytes = 200;
  auto writer = CheckpointWriter::create(folder / "out", specs, options);
  ASSERT_TRUE(writer) << writer.error().message();
  ASSERT_TRUE(write_patterns(*writer, specs));
  expect_reads_back(folder / "out", specs);
  const auto checkpoint = Checkpoint::open(folder / "out");
  EXPECT_GT(checkpoint->shards().size(), 2U);
  std::vector<std::uint64_t> bytes(checkpoint->shards().size());
  for (const TensorInfo& info : checkpoint->tensors()) {
    bytes[static_cast<std::size_t>(info.shard)] += info.bytes;
  }
  EXPECT_THAT(bytes, testing::Each(AllOf(testing::Gt(0U), testing::Le(200U))));
  const auto index = checkpoint->json_file("model.safetensors.index.json");
  EXPECT_EQ((*index)->find("metadata")->find("total_size")->as_uint64(), checkpoint->total_bytes());
}

TEST(CheckpointWriter, TensorLargerThanAShardGetsOneOfItsOwn) {
  ScratchFolder folder;
  const std::vector<TensorSpec> specs = {
      {"a", DType::u8, {10}}, {"big", DType::u8, {1000}}, {"c", DType::u8, {10}}};
  WriterOptions options;
  options.max_shard_bytes = 100;
  auto writer = CheckpointWriter::create(folder / "out", specs, options);
  ASSERT_TRUE(write_patterns(*writer, specs));
  EXPECT_THAT(
      listing(folder / "out"),
      UnorderedElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                           "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
}

// What the reference implementation writes for the same tensors.
TEST(CheckpointWriter, FileIsTheReferenceWritersByteForByte) {
  ScratchFolder folder;
  const std::vector<TensorSpec> specs = {
      {"b", DType::u8, {3}}, {"a", DType::u8, {1}}, {"w", DType::f32, {1, 1}}};
  auto writer = CheckpointWriter::create(folder / "out", specs);
  ASSERT_TRUE(writer->write("b", as_bytes("bbb")));
  ASSERT_TRUE(writer->write("a", as_bytes("a")));
  ASSERT_TRUE(writer->write("w", as_bytes("wwww")));
  ASSERT_TRUE(writer->finish());
  std::string header =
      R"({"__metadata__":{"format":"pt"},)" + raw_entry("w", "F32", "[1,1]", "[0,4]") + "," +
      raw_entry("a", "U8", "[1]", "[4,5]") + "," + raw_entry("b", "U8", "[3]", "[5,8]") + "}";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(file_content(folder / "out/model.safetensors"), raw_safetensors(header, "wwwwabbb"));
}

TEST(CheckpointWriter, PiecesInAnyOrderFromManyThreadsMakeAWhole) {
  ScratchFolder folder;
  const std::vector<TensorSpec> specs = {{"t0", DType::u8, {4096}}, {"t1", DType::u8, {4096}}};
  auto writer = CheckpointWriter::create(folder / "out", specs);
  ASSERT_TRUE(writer);
  std::vector<std::thread> threads;
  for (std::size_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      for (const TensorSpec& spec : specs) {
        const std::string data = pattern(spec.name, 4096);
        for (std::size_t piece = 4; piece-- > 0;) {
          const std::size_t offset = (piece * 4 + part) * 256;
          EXPECT_TRUE(writer->write(spec.name, as_bytes(data).subspan(offset, 256), offset));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(writer->finish());
  expect_reads_back(folder / "out", specs);
}

TEST(CheckpointWriter, IncompleteTensorsAreNamedAndCanStillBeCompleted) {
  ScratchFolder folder;
  auto writer = CheckpointWriter::create(folder / "out",
                                         {{"half", DType::u8, {8}}, {"none", DType::u8, {1}}});
  ASSERT_TRUE(writer);
  // Overlapping pieces count once.
  ASSERT_TRUE(writer->write("half", as_bytes("0123")));
  ASSERT_TRUE(writer->write("half", as_bytes("12"), 1));
  ASSERT_TRUE(writer->write("half", as_bytes("7"), 7));
  const auto finished = writer->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::inconsistent);
  EXPECT_THAT(finished.error().what,
              AllOf(HasSubstr("2 of 2 tensors"),
                    HasSubstr("\"half\" (5 of 8 bytes, the first missing is 4)"),
                    HasSubstr("\"none\" (0 of 1 bytes, the first missing is 0)")));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  ASSERT_TRUE(writer->write("half", as_bytes("456"), 4));
  ASSERT_TRUE(writer->write("none", as_bytes("x")));
  EXPECT_TRUE(writer->finish());
  EXPECT_EQ(writer->finish().error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(writer->write("none", as_bytes("x")).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(writer->write_file("late", "x").error().code, ErrorCode::invalid_argument);
}

TEST(CheckpointWriter, NothingRemainsWithoutFinish) {
  ScratchFolder folder;
  {
    auto writer = CheckpointWriter::create(folder / "out", {{"t", DType::u8, {8}}});
    ASSERT_TRUE(writer);
    EXPECT_THAT(listing(folder.path()), ElementsAre(HasSubstr("out.partial.")));
    CheckpointWriter moved = std::move(*writer);
    ASSERT_TRUE(moved.write("t", as_bytes("01234567")));
  }
  EXPECT_TRUE(listing(folder.path()).empty());
}

TEST(CheckpointWriter, SmallFilesComeAlong) {
  ScratchFolder folder;
  const auto source = folder.write("tokenizer.json", "{}");
  auto writer = CheckpointWriter::create(folder / "out", {{"t", DType::u8, {0}}});
  ASSERT_TRUE(writer);
  EXPECT_TRUE(writer->write_file("config.json", "{\"a\":1}"));
  EXPECT_TRUE(writer->copy_file(source));
  EXPECT_THAT(writer->write_file("config.json", "").error().what, HasSubstr("written already"));
  EXPECT_THAT(writer->write_file("model.safetensors", "").error().what,
              HasSubstr("a file of the checkpoint itself"));
  for (const std::string_view name : {"../x", "a/b", "", ".", "..", "/x"}) {
    EXPECT_EQ(writer->write_file(name, "").error().code, ErrorCode::invalid_argument) << name;
  }
  EXPECT_EQ(writer->copy_file(folder / "absent").error().code, ErrorCode::not_found);
  ASSERT_TRUE(writer->finish());
  EXPECT_EQ(file_content(folder / "out/config.json"), "{\"a\":1}");
  EXPECT_EQ(file_content(folder / "out/tokenizer.json"), "{}");
}

TEST(CheckpointWriter, WritesOutsideATensorAreRefused) {
  ScratchFolder folder;
  auto writer = CheckpointWriter::create(folder / "out", {{"t", DType::bf16, {2, 2}}});
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->write("t", as_bytes("012345678")).error().message(),
            "tensor \"t\": 9 bytes at 0 do not fit into bf16 [2, 2] of 8 bytes");
  EXPECT_FALSE(writer->write("t", as_bytes("0"), 8));
  EXPECT_FALSE(writer->write("t", as_bytes("01"), ~std::uint64_t{0}));
  EXPECT_EQ(writer->write("u", as_bytes("0")).error().code, ErrorCode::not_found);
}

struct BadSpecs {
  std::vector<TensorSpec> specs;
  ErrorCode code;
  std::string_view says;
};

TEST(CheckpointWriter, TensorsThatCannotBeWrittenAreRefused) {
  const BadSpecs cases[] = {
      {{{"", DType::u8, {1}}}, ErrorCode::invalid_argument, "a tensor needs a name"},
      {{{"__metadata__", DType::u8, {1}}}, ErrorCode::invalid_argument, "reserved"},
      {{{"\xff", DType::u8, {1}}},
       ErrorCode::invalid_argument,
       "tensor \"\\xff\": the name is not UTF-8"},
      {{{"a", DType::u8, {1}}, {"a", DType::i8, {1}}},
       ErrorCode::invalid_argument,
       "tensor \"a\": declared twice"},
      {{{"n", DType::nf3, {8}}}, ErrorCode::unsupported, "no type for nf3"},
      {{{"f", DType::f4_e2m1, {3}}}, ErrorCode::corrupt, "12 bits"},
      {{{"l", DType::u8, {std::int64_t{1} << 40, std::int64_t{1} << 40}}},
       ErrorCode::limit,
       "2^63"},
      {std::vector<TensorSpec>(9, {"l", DType::u8, {std::int64_t{1} << 60}}), ErrorCode::limit,
       "2^63 - 1 bytes"},
  };
  for (const BadSpecs& bad : cases) {
    ScratchFolder folder;
    const auto writer = CheckpointWriter::create(folder / "out", bad.specs);
    ASSERT_FALSE(writer) << bad.says;
    EXPECT_EQ(writer.error().code, bad.code) << writer.error().message();
    EXPECT_THAT(writer.error().message(), HasSubstr(bad.says));
    EXPECT_TRUE(listing(folder.path()).empty());
  }
}

TEST(CheckpointWriter, TargetThatExistsOrCannotBeMadeIsRefused) {
  ScratchFolder folder;
  folder.write("file", "");
  std::filesystem::create_directory(folder / "empty");
  for (const std::string_view name : {"file", "empty", "empty/"}) {
    const auto writer = CheckpointWriter::create(folder / name, {});
    ASSERT_FALSE(writer) << name;
    EXPECT_THAT(writer.error().what, HasSubstr("exists already"));
  }
  EXPECT_EQ(CheckpointWriter::create(folder / "absent/out", {}).error().code, ErrorCode::not_found);
  EXPECT_THAT(CheckpointWriter::create(folder / "file/out", {}).error().what,
              HasSubstr("Not a directory"));
  EXPECT_FALSE(CheckpointWriter::create("/", {}));
  EXPECT_FALSE(CheckpointWriter::create("", {}));
}

TEST(CheckpointWriter, TargetThatAppearsMeanwhileIsNotReplaced) {
  ScratchFolder folder;
  {
    auto writer = CheckpointWriter::create(folder / "out", {});
    ASSERT_TRUE(writer);
    std::filesystem::create_directory(folder / "out");
    const auto finished = writer->finish();
    ASSERT_FALSE(finished);
    EXPECT_THAT(finished.error().message(), AllOf(HasSubstr("/out"), HasSubstr("File exists")));
  }
  EXPECT_THAT(listing(folder.path()), ElementsAre("out"));
  EXPECT_TRUE(listing(folder / "out").empty());
}

TEST(CheckpointWriter, FullDiskShowsAtOnceAndLeavesNothing) {
  ScratchFolder folder;
  const auto writer =
      CheckpointWriter::create(folder / "out", {{"t", DType::u8, {std::int64_t{1} << 50}}});
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::io);
  EXPECT_THAT(writer.error().message(),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("reserve 1125899906842"),
                    HasSubstr("errno")));
  EXPECT_TRUE(listing(folder.path()).empty());
}

// Files in memory reserve nothing, so that their room is compared with what is free.
TEST(OutputFile, InMemoryWithTooLittleRoomIsRefused) {
  const std::filesystem::path memory = "/dev/shm";
  struct statfs system = {};
  if (::statfs(memory.c_str(), &system) != 0 || system.f_type != TMPFS_MAGIC ||
      system.f_blocks == 0 || ::access(memory.c_str(), W_OK) != 0) {
    GTEST_SKIP() << "/dev/shm is no file system in memory with a limit that may be written";
  }
  const std::uint64_t all =
      std::uint64_t{system.f_blocks} * static_cast<std::uint64_t>(system.f_bsize);
  EXPECT_TRUE(check_room(memory, 1));
  const auto room = check_room(memory, all + 1);
  ASSERT_FALSE(room);
  EXPECT_EQ(room.error().code, ErrorCode::io);
  EXPECT_THAT(room.error().what, AllOf(HasSubstr("reserve " + std::to_string(all + 1) + " bytes"),
                                       HasSubstr("No space left")));
  const auto path = memory / ("fewbit_room_" + std::to_string(::getpid()));
  const auto file = OutputFile::create(path, all + 1);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().what, room.error().what);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(OutputFile, WhatCannotBeReservedIsNotLeftAndAnothersFileIs) {
  const ScratchFolder folder;
  EXPECT_FALSE(OutputFile::create(folder / "file", std::uint64_t{1} << 50));
  EXPECT_TRUE(listing(folder.path()).empty());
  folder.write("file", "of another");
  EXPECT_FALSE(OutputFile::create(folder / "file", std::uint64_t{1} << 50));
  EXPECT_EQ(std::filesystem::file_size(folder / "file"), 10U);
}

TEST(OutputFile, ReadsBackWhatWasWrittenAndSaysWhereItEnds) {
  const ScratchFolder folder;
  const auto file = OutputFile::create(folder / "file", 100);
  ASSERT_TRUE(file);
  const std::string text = "some bytes";
  ASSERT_TRUE(file->write(std::as_bytes(std::span(text)), 90));
  std::string back(text.size(), '?');
  ASSERT_TRUE(file->read(std::as_writable_bytes(std::span(back)), 90));
  EXPECT_EQ(back, text);
  const auto beyond = file->read(std::as_writable_bytes(std::span(back)), 91);
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message(), AllOf(HasSubstr("file"), HasSubstr("at 100")));
}

}  // namespace
}  // namespace fewbit
