// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "checkpoint/raw_safetensors.hpp"
#include "checkpoint/safetensors_dtype.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

Result<SafetensorsHeader> parse(std::string_view file) {
  return parse_safetensors(as_bytes(file), "f.safetensors");
}

Error refusal(std::string_view file) {
  const auto header = parse(file);
  EXPECT_FALSE(header);
  return header ? Error{} : header.error();
}

TEST(Safetensors, ReadsEntriesAndMetadata) {
  const auto header = parse(raw_safetensors(
      "  {\"__metadata__\":{\"format\":\"pt\"}," + raw_entry("b", "F32", "[2]", "[4,12]") + "," +
          raw_entry("a", "BF16", "[1,2]", "[0,4]") + "," + raw_entry("z", "F32", "[]", "[12,16]") +
          "," + raw_entry("empty", "I64", "[3,0]", "[16,16]") + "} \n",
      "0123456789abcdef"));
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->metadata.at("format"), "pt");
  ASSERT_EQ(header->tensors.size(), 4U);
  const TensorInfo& first = header->tensors[0];
  EXPECT_EQ(first.name, "a");
  EXPECT_EQ(first.dtype, DType::bf16);
  EXPECT_EQ(first.shape, (Shape{1, 2}));
  EXPECT_EQ(first.bytes, 4U);
  EXPECT_EQ(header->tensors[1].file_offset, first.file_offset + 4);
  EXPECT_EQ(header->tensors[2].shape, Shape{});
  EXPECT_EQ(header->tensors[3].bytes, 0U);
}

TEST(Safetensors, EveryTypeOfTheFormatIsReadWithItsWidth) {
  struct Case {
    std::string_view name;
    DType dtype;
    int bits;
  };
  const Case cases[] = {{"BOOL", DType::boolean, 8},
                        {"F4", DType::f4_e2m1, 4},
                        {"F6_E2M3", DType::f6_e2m3, 6},
                        {"F6_E3M2", DType::f6_e3m2, 6},
                        {"U8", DType::u8, 8},
                        {"I8", DType::i8, 8},
                        {"F8_E5M2", DType::f8_e5m2, 8},
                        {"F8_E4M3", DType::f8_e4m3, 8},
                        {"F8_E8M0", DType::f8_e8m0, 8},
                        {"F8_E4M3FNUZ", DType::f8_e4m3fnuz, 8},
                        {"F8_E5M2FNUZ", DType::f8_e5m2fnuz, 8},
                        {"I16", DType::i16, 16},
                        {"U16", DType::u16, 16},
                        {"F16", DType::f16, 16},
                        {"BF16", DType::bf16, 16},
                        {"I32", DType::i32, 32},
                        {"U32", DType::u32, 32},
                        {"F32", DType::f32, 32},
                        {"C64", DType::c64, 64},
                        {"F64", DType::f64, 64},
                        {"I64", DType::i64, 64},
                        {"U64", DType::u64, 64}};
  int rank = 0;
  for (const Case& c : cases) {
    const std::size_t bytes = static_cast<std::size_t>(c.bits);  // of 8 elements
    const auto header = parse(raw_safetensors(
        "{" + raw_entry("t", c.name, "[2,4]", "[0," + std::to_string(bytes) + "]") + "}",
        std::string(bytes, 'x')));
    ASSERT_TRUE(header) << header.error().message();
    EXPECT_EQ(header->tensors[0].dtype, c.dtype);
    EXPECT_EQ(header->tensors[0].shape, (Shape{2, 4}));
    EXPECT_EQ(safetensors_name(c.dtype), c.name);
    EXPECT_EQ(safetensors_rank(c.dtype), rank++);
  }
  EXPECT_EQ(safetensors_name(DType::nf3), std::nullopt);
}

// One wrong header, and what the message must say of it.
struct Hostile {
  std::string label;
  std::string file;
  ErrorCode code;
  std::string says;
};

std::ostream& operator<<(std::ostream& out, const Hostile& hostile) { return out << hostile.label; }

std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets,
                std::string_view data = "01234567") {
  return raw_safetensors("{" + raw_entry("t", dtype, shape, offsets) + "}", data);
}

std::string two(std::string_view first, std::string_view second) {
  return raw_safetensors(
      "{" + raw_entry("p", "U8", "[4]", first) + "," + raw_entry("q", "U8", "[4]", second) + "}",
      "01234567");
}

const std::string tensor_t = "f.safetensors: tensor \"t\": ";

std::vector<Hostile> hostile_products() {
  const ErrorCode c = ErrorCode::corrupt;
  return {
      {"ProductWrapsToZero", one("F32", "[2147483648,2147483648]", "[0,1099511627776]"), c,
       tensor_t +
           "data-incomplete: data_offsets [0, 1099511627776], but the file has only 8 bytes"},
      {"ProductWrapsInsideData", one("F32", "[2147483648,2147483648]", "[0,0]"), c,
       tensor_t + "overflow: f32 [2147483648, 2147483648]"},
      {"ProductWrapsWithWidth", one("U8", "[8589934592,2147483648]", "[0,0]"), c,
       tensor_t + "overflow: shape [8589934592, 2147483648]"},
      {"ProductWrapsNearTheTop", one("U8", "[2,9223372036854775807]", "[0,8]"), c,
       tensor_t + "overflow: "},
      {"DimensionPastInt64", one("U8", "[2,18446744073709551614]", "[0,8]"), c,
       tensor_t + "shape: expected integers from 0 to 2^63 - 1, found 18446744073709551614"},
      {"OverflowBesideZero", one("U8", "[0,9223372036854775807,4]", "[0,0]", ""), c,
       tensor_t + "overflow: "},
  };
}

std::vector<Hostile> hostile_numbers() {
  const ErrorCode c = ErrorCode::corrupt;
  return {
      {"BeginBehindEnd", one("U8", "[8]", "[8,0]"), c,
       tensor_t + "data_offsets: begin 8 is behind end 0"},
      {"NegativeOffset", one("U8", "[8]", "[-8,0]"), c,
       tensor_t + "data_offsets: expected integers from 0 to 2^64 - 1, found -8"},
      {"NegativeDimension", one("U8", "[-8]", "[0,8]"), c,
       tensor_t + "shape: expected integers from 0 to 2^63 - 1, found -8"},
      {"OffsetsBehindData", one("U8", "[8]", "[1000,1008]"), c,
       tensor_t + "data-incomplete: data_offsets [1000, 1008], but the file has only 8 bytes"},
      {"OffsetPastUint64", one("U8", "[8]", "[0,18446744073709551616]"), c,
       tensor_t + "data_offsets: expected integers"},
      {"DimensionPastDouble", one("U8", "[9007199254740993]", "[0,9007199254740993]"), c,
       tensor_t + "data-incomplete: data_offsets [0, 9007199254740993]"},
      {"FractionalDimension", one("U8", "[8.0]", "[0,8]"), c,
       tensor_t + "shape: expected integers from 0 to 2^63 - 1, found 8.0"},
      {"ExponentOffset", one("U8", "[8]", "[0,8e0]"), c,
       tensor_t + "data_offsets: expected integers"},
      {"SizeAgainstShape", one("U8", "[7]", "[0,8]"), c,
       tensor_t + "size: data_offsets [0, 8] span 8 bytes, u8 [7] takes 7"},
      {"OddCountOfF4", one("F4", "[3,5]", "[0,8]"), c,
       tensor_t + "misaligned: f4_e2m1 [3, 5] has 60 bits"},
      {"OddCountOfF6", one("F6_E2M3", "[3]", "[0,2]"), c,
       tensor_t + "misaligned: f6_e2m3 [3] has 18"},
      {"TooManyDimensions",
       one("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,8]", "[0,8]"), c,
       tensor_t + "shape: 33 dimensions, the limit is 32"},
  };
}

std::vector<Hostile> hostile_entries() {
  const ErrorCode c = ErrorCode::corrupt;
  return {
      {"UnknownType", one("F7", "[8]", "[0,8]"), c, tensor_t + "dtype: expected one of BOOL, F4, "},
      {"TypeIsNoString",
       raw_safetensors(R"({"t":{"dtype":7,"shape":[8],"data_offsets":[0,8]}})", "01234567"), c,
       "U64, found 7"},
      {"NoType", raw_safetensors(R"({"t":{"shape":[8],"data_offsets":[0,8]}})", "01234567"), c,
       "found nothing"},
      {"NoShape", raw_safetensors(R"({"t":{"dtype":"U8","data_offsets":[0,8]}})", "01234567"), c,
       tensor_t + "shape: expected an array of integers, found nothing"},
      {"NoOffsets", raw_safetensors(R"({"t":{"dtype":"U8","shape":[8]}})", "01234567"), c,
       tensor_t + "data_offsets: expected an array of two integers, found nothing"},
      {"ThreeOffsets", one("U8", "[8]", "[0,4,8]"), c,
       tensor_t + "data_offsets: expected two integers, found 3 values"},
      {"EntryIsNoObject", raw_safetensors(R"({"t":[]})"), c,
       tensor_t + "entry: expected an object, found a JSON array"},
      {"HeaderIsNoObject", raw_safetensors("[]"), c,
       "header: expected an object, found a JSON array"},
  };
}

std::vector<Hostile> hostile_structure() {
  const ErrorCode c = ErrorCode::corrupt;
  const std::string good = raw_entry("t", "U8", "[8]", "[0,8]");
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += "{\"a\":";
  return {
      {"DuplicateTensor", raw_safetensors("{" + good + "," + good + "}", "01234567"), c,
       "duplicate key \"t\""},
      {"DuplicateField",
       raw_safetensors(R"({"t":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}})",
                       "01234567"),
       c, "duplicate key \"dtype\""},
      {"DuplicateMetadata", raw_safetensors(R"({"__metadata__":{},"__metadata__":{}})"), c,
       "duplicate key \"__metadata__\""},
      {"MetadataIsNoObject", raw_safetensors(R"({"__metadata__":[]})"), c,
       "metadata: expected an object of strings, found a JSON array"},
      {"MetadataIsNoString", raw_safetensors(R"({"__metadata__":{"a":1}})"), c,
       "metadata: expected a string for \"a\", found 1"},
      {"Overlap", two("[0,4]", "[2,6]"), c,
       "tensor \"q\": overlap: begins at data byte 2, where \"p\" ends only at 4"},
      {"SharedRange", two("[0,4]", "[0,4]"), c, "tensor \"q\": overlap: begins at data byte 0"},
      {"Hole", two("[0,4]", "[5,9]") + "8", c,
       "tensor \"q\": hole: begins at data byte 5, bytes 4 to 5 belong to no tensor"},
      {"HoleAtTheFront", one("U8", "[7]", "[1,8]"), c, tensor_t + "hole: begins at data byte 1"},
      {"EmptyTensorInsideAnother",
       raw_safetensors("{" + good + "," + raw_entry("e", "U8", "[0]", "[3,3]") + "}", "01234567"),
       c, "tensor \"e\": overlap: begins at data byte 3"},
      {"TrailingBytes", one("U8", "[8]", "[0,8]", "012345678"), c,
       "data-size: the tensors end at file byte "},
      {"DataWithoutTensors", raw_safetensors("{}", "x"), c,
       "data-size: the tensors end at file byte 10, the file has 11"},
      {"TextAfterHeader", raw_safetensors("{}{}"), c, "byte 3"},
      {"NestingOf10000", raw_safetensors(deep), ErrorCode::limit,
       "nested deeper than 16 levels, the limit"},
      {"InvalidUtf8", raw_safetensors("{\"\xff\":{}}"), c, "UTF-8"},
  };
}

std::vector<Hostile> hostile_lengths() {
  const ErrorCode c = ErrorCode::corrupt;
  return {
      {"EmptyFile", "", c,
       "header-too-small: the file has 0 bytes, the header length alone takes 8"},
      {"SevenBytes", "1234567", c, "header-too-small: the file has 7 bytes"},
      {"Length2To63", little_endian_u64(std::uint64_t{1} << 63) + "{}", c,
       "header-too-large: header length 9223372036854775808, the limit is 100000000"},
      {"LengthJustOverLimit", little_endian_u64(100'000'001) + "{}", c,
       "header-too-large: header length 100000001, the limit is 100000000"},
      {"LengthAtLimitButShortFile", little_endian_u64(100'000'000) + "{}", c,
       "header-length: header length 100000000, but only 2 bytes follow it"},
      {"LengthOfAllOnes", std::string(8, '\xff'), c,
       "header-too-large: header length 1844674407370955"},
      {"LongerThanFile", little_endian_u64(3) + "{}", c,
       "header-length: header length 3, but only 2 bytes follow it"},
      {"LengthZero", little_endian_u64(0), c, "byte "},
      {"Gguf", std::string("GGUF\x03\0\0\0rest", 12), ErrorCode::unsupported,
       "this is a GGUF file"},
      {"LfsPointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0", c,
       "a Git LFS pointer, the data itself was not downloaded"},
      {"Zip", std::string("PK\x03\x04\x14\0\x08\0\x08\0", 10), c, "a zip archive"},
      {"Html", "<!DOCTYPE html><html>", c, "an HTML page"},
  };
}

class HostileSafetensors : public testing::TestWithParam<Hostile> {};

TEST_P(HostileSafetensors, IsRefusedWithItsReason) {
  const Error error = refusal(GetParam().file);
  EXPECT_EQ(error.code, GetParam().code) << error.message();
  EXPECT_THAT(error.message(), HasSubstr(GetParam().says));
  EXPECT_THAT(error.message(), HasSubstr("f.safetensors"));
  EXPECT_LT(error.message().size(), 400U);
}

const auto label_of = [](const auto& info) { return info.param.label; };
INSTANTIATE_TEST_SUITE_P(Products, HostileSafetensors, testing::ValuesIn(hostile_products()),
                         label_of);
INSTANTIATE_TEST_SUITE_P(Entries, HostileSafetensors, testing::ValuesIn(hostile_entries()),
                         label_of);
INSTANTIATE_TEST_SUITE_P(Numbers, HostileSafetensors, testing::ValuesIn(hostile_numbers()),
                         label_of);
INSTANTIATE_TEST_SUITE_P(Structure, HostileSafetensors, testing::ValuesIn(hostile_structure()),
                         label_of);
INSTANTIATE_TEST_SUITE_P(Lengths, HostileSafetensors, testing::ValuesIn(hostile_lengths()),
                         label_of);

std::string small_file() {
  return raw_safetensors("{\"__metadata__\":{\"format\":\"pt\"}," +
                             raw_entry("w", "F32", "[2]", "[0,8]") + "," +
                             raw_entry("q", "F4", "[2,3]", "[8,11]") + "," +
                             raw_entry("e", "U8", "[0]", "[11,11]") + "}",
                         "01234567890");
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = small_file();
  ASSERT_TRUE(parse(file));
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(parse(std::string_view(file).substr(0, size))) << size << " bytes";
  }
}

// Whatever one byte of the header is changed to, the result is an error or a header that keeps
// every promise: tensors tile the data.
TEST(Safetensors, EveryChangeOfOneHeaderByteIsHandled) {
  const std::string file = small_file();
  const std::size_t header_end = file.size() - 11;
  int accepted = 0;
  for (std::size_t at = 0; at < header_end; ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = file;
      changed[at] = static_cast<char>(value);
      const auto header = parse(changed);
      if (!header) continue;
      ++accepted;
      std::uint64_t covered = header_end;
      for (const TensorInfo& info : header->tensors) {
        EXPECT_EQ(info.file_offset, covered);
        covered += info.bytes;
      }
      EXPECT_EQ(covered, changed.size());
    }
  }
  EXPECT_GT(accepted, static_cast<int>(header_end));  // at least the unchanged byte each time
}

}  // namespace
}  // namespace fewbit
