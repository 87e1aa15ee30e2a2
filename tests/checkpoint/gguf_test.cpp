// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "checkpoint/parsed_gguf.hpp"
#include "checkpoint/raw_gguf.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Error refusal(std::string_view file) {
  const auto header = parse(file);
  EXPECT_FALSE(header);
  return header ? Error{} : header.error();
}

// F32 [2, 3], Q4_0 [2, 32] and I8 [5].
RawGguf three_tensors(std::uint32_t version = 3) {
  RawGguf raw(version);
  raw.kv_string("general.architecture", "llama").kv_u32("llama.block_count", 7);
  raw.tensor("a", {3, 2}, 0, 0).tensor("b", {32, 2}, 2, 32).tensor("c", {5}, 24, 96);
  return raw.data(std::string(32, 'a') + std::string(64, 'b') + std::string(5, 'c'));
}

TEST(Gguf, ReadsHeadersOfAllVersions) {
  for (const std::uint32_t version : {1U, 2U, 3U}) {
    const std::string file = three_tensors(version).build();
    const auto header = parse(file);
    ASSERT_TRUE(header) << version << header.error().message();
    EXPECT_EQ(header->version, version);
    EXPECT_EQ(header->data_begin % 32, 0U);
    EXPECT_EQ(header->metadata.architecture(), "llama");
    EXPECT_EQ(header->metadata.find_of_architecture("block_count")->as_int64(), 7);
    ASSERT_EQ(header->tensors.size(), 3U);
    EXPECT_TRUE(header->findings.empty());

    const TensorInfo& a = header->tensors[0];
    EXPECT_EQ(a.name, "a");
    EXPECT_EQ(a.dtype, DType::f32);
    EXPECT_EQ(a.shape, (Shape{2, 3}));  // dimensions are stored fastest first
    EXPECT_EQ(a.bytes, 24U);
    EXPECT_EQ(a.file_offset, header->data_begin);
    EXPECT_FALSE(a.blocks);

    const TensorInfo& b = header->tensors[1];
    EXPECT_EQ(b.dtype, DType::u8);
    EXPECT_EQ(b.shape, (Shape{2, 18}));
    EXPECT_EQ(b.bytes, 36U);
    EXPECT_EQ(b.blocks, (BlockFormat{2, 32, 18, {2, 32}}));

    const TensorInfo& c = header->tensors[2];
    EXPECT_EQ(c.dtype, DType::i8);
    EXPECT_EQ(file.substr(c.file_offset, c.bytes), "ccccc");
  }
}

TEST(Gguf, AFileWithoutTensorsNeedsNoData) {
  const auto header = parse(RawGguf().kv_u32("x", 1).build());
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_TRUE(header->tensors.empty());
}

TEST(Gguf, ValuesKeepTheirTypes) {
  RawGguf raw;
  const auto number = [](auto value) {
    using T = decltype(value);
    return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
  };
  raw.kv("u8", 0, "\xFF").kv("i8", 1, "\xFF").kv("u16", 2, number(std::uint16_t{65535}));
  raw.kv("i16", 3, number(std::int16_t{-2})).kv("i32", 5, number(std::int32_t{-3}));
  raw.kv("f32", 6, number(0.5F)).kv("true", 7, "\x01").kv("false", 7, std::string(1, '\0'));
  raw.kv("u64", 10, number(std::numeric_limits<std::uint64_t>::max()));
  raw.kv("i64", 11, number(std::int64_t{-4})).kv("f64", 12, number(0.1));
  raw.kv("text", 8, raw.string("hello"));
  raw.kv("list", 9,
         little_endian(3, 4) + raw.length(2) + number(std::int16_t{-1}) + number(std::int16_t{9}));
  raw.kv("names", 9,
         little_endian(8, 4) + raw.length(3) + raw.string("x") + raw.string("") + raw.string("yz"));
  raw.kv("none", 9, little_endian(8, 4) + raw.length(0));
  const std::string file = raw.build();
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message();
  const auto get = [&](std::string_view key) { return *header->metadata.find(key); };
  EXPECT_EQ(get("u8").as_int64(), 255);
  EXPECT_EQ(get("i8").as_int64(), -1);
  EXPECT_EQ(get("u16").as_int64(), 65535);
  EXPECT_EQ(get("i16").as_int64(), -2);
  EXPECT_EQ(get("i32").as_int64(), -3);
  EXPECT_EQ(get("i64").as_int64(), -4);
  EXPECT_EQ(get("u64").as_int64(), std::nullopt);  // does not fit
  EXPECT_EQ(get("u64").text(), "18446744073709551615");
  EXPECT_EQ(get("u64").as_double(), 0x1p64);
  EXPECT_EQ(get("f32").as_double(), 0.5);
  EXPECT_EQ(get("f32").as_int64(), std::nullopt);
  EXPECT_EQ(get("f64").as_double(), 0.1);
  EXPECT_EQ(get("true").as_bool(), true);
  EXPECT_EQ(get("false").as_bool(), false);
  EXPECT_EQ(get("true").as_int64(), std::nullopt);
  EXPECT_EQ(get("u8").as_bool(), std::nullopt);
  EXPECT_EQ(get("text").as_string(), "hello");
  EXPECT_EQ(get("list").as_int64(), std::nullopt);  // an array is no single value
  EXPECT_EQ(get("list").int64_at(1), 9);
  EXPECT_EQ(get("list").int64_at(2), std::nullopt);
  EXPECT_EQ(get("list").text(), "[2 x i16] -1, 9");
  EXPECT_THAT(get("names").strings(), ElementsAre("x", "", "yz"));
  EXPECT_EQ(get("names").text(), R"([3 x string] "x", "", "yz")");
  EXPECT_EQ(get("names").as_string(), std::nullopt);
  EXPECT_TRUE(get("none").strings().empty());
  EXPECT_TRUE(get("text").strings().empty());
  EXPECT_EQ(header->metadata.find("absent"), nullptr);
  EXPECT_EQ(header->metadata.find_of_architecture("x"), nullptr);
}

TEST(Gguf, TheOtherByteOrderIsNamed) {
  const std::string file = "GGUF" + std::string("\0\0\0\3", 4) + std::string(16, '\0');
  const Error error = refusal(file);
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.what, HasSubstr("byte-order: version 3 stored big-endian"));
}

TEST(Gguf, AnAlignmentOfItsOwnIsUsed) {
  RawGguf raw;
  raw.kv_u32("general.alignment", 128).tensor("a", {4}, 24, 0).tensor("b", {4}, 24, 128);
  const std::string file = raw.data(std::string(132, 'x')).build(128);
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->alignment, 128U);
  EXPECT_EQ(header->data_begin % 128, 0U);
}

TEST(Gguf, BytesThatBelongToNoTensorAreAFinding) {
  RawGguf raw = three_tensors();
  const auto padded = parse(RawGguf(raw).data(std::string(27, '\0')).build());
  ASSERT_TRUE(padded);
  EXPECT_TRUE(padded->findings.empty());
  const auto more = parse(RawGguf(raw).data(std::string(28, '\0')).build());
  ASSERT_TRUE(more);
  ASSERT_EQ(more->findings.size(), 1U);
  EXPECT_EQ(more->findings[0].rule, "trailing-bytes");
  EXPECT_THAT(more->findings[0].found, HasSubstr("1 bytes"));
  EXPECT_EQ(more->findings[0].where, "f.gguf");
}

struct BadFile {
  std::string name;
  std::string file;
  ErrorCode code;
  std::string what;
  std::string where = "f.gguf";
};
std::ostream& operator<<(std::ostream& out, const BadFile& bad) { return out << bad.name; }

constexpr std::uint64_t huge = std::uint64_t{1} << 62;

std::vector<BadFile> bad_starts() {
  RawGguf many_tensors = three_tensors();
  many_tensors.tensor_count = huge;
  RawGguf many_kvs = three_tensors();
  many_kvs.kv_count = std::uint64_t{1} << 61;
  return {
      {"Empty", "", ErrorCode::corrupt, "magic: the file does not begin with GGUF"},
      {"Pickle", "\x80\x02rest", ErrorCode::corrupt, "this is a Python pickle"},
      {"OnlyMagic", "GGUF", ErrorCode::corrupt,
       "truncated: the version at byte 4 takes 4 bytes, the file has 4"},
      {"Version0", RawGguf(0).build(), ErrorCode::corrupt, "version 0, expected 1 to 3"},
      {"Version4", RawGguf(4).build(), ErrorCode::unsupported, "version: 4, expected 1 to 3"},
      {"BigEndian", RawGguf(0x03000000).build(), ErrorCode::unsupported,
       "version 3 stored big-endian"},
      {"TensorCount", many_tensors.build(), ErrorCode::corrupt,
       "tensor-count: 4611686018427387904 tensors, but only"},
      {"KvCount", many_kvs.build(), ErrorCode::corrupt,
       "kv-count: 2305843009213693952 key-value pairs, but only"},
  };
}

std::vector<BadFile> bad_values() {
  RawGguf raw;
  const std::string one = little_endian(1, 4);
  const auto with = [](RawGguf file) { return file.kv_u32("fill", 0).build(); };
  return {
      {"KeyEmpty", with(RawGguf().kv_u32("", 1)), ErrorCode::corrupt,
       "kv-key: a key of 0 bytes, expected 1 to 65535", "f.gguf: key 0"},
      {"KeyLength", with(RawGguf().kv_raw(little_endian(huge, 8) + "key" + std::string(20, 'x'))),
       ErrorCode::corrupt, "truncated: key 0 at byte 32 takes 4611686018427387904 bytes"},
      {"KeyLong", with(RawGguf().kv_u32(std::string(65536, 'k'), 1)), ErrorCode::corrupt,
       "a key of 65536 bytes"},
      {"KeyZeroByte", with(RawGguf().kv_u32(std::string("a\0b", 3), 1)), ErrorCode::corrupt,
       "kv-key: \"a\\x00b\" holds a zero byte"},
      {"KeyUtf8", with(RawGguf().kv_u32("\xFFk", 1)), ErrorCode::corrupt, "is no UTF-8"},
      {"KeyTwice", with(RawGguf().kv_u32("k", 1).kv_u32("k", 2)), ErrorCode::corrupt,
       R"(kv-twice: "k" stands twice: "1" and "2")"},
      {"Kind13", with(RawGguf().kv("k", 13, one)), ErrorCode::corrupt,
       "kv-type: value type 13, expected 0 to 12", R"(f.gguf: key "k")"},
      {"KindMinus1", with(RawGguf().kv("k", 0xFFFFFFFF, one)), ErrorCode::corrupt,
       "kv-type: value type 4294967295"},
      {"StringLength", with(RawGguf().kv("k", 8, little_endian(huge, 8))), ErrorCode::corrupt,
       R"(truncated: the value of "k" at byte)"},
      {"ArrayCount", with(RawGguf().kv("k", 9, one + little_endian(std::uint64_t{1} << 61, 8))),
       ErrorCode::corrupt, "kv-array: 2305843009213693952 elements of i8, but"},
      {"ArrayCountWraps",
       with(RawGguf().kv("k", 9, little_endian(12, 4) + little_endian(huge * 2, 8))),
       ErrorCode::corrupt, "kv-array: 9223372036854775808 elements of f64"},
      {"ArrayOfArrays",
       with(RawGguf().kv("k", 9, little_endian(9, 4) + raw.length(1) + one + raw.length(0))),
       ErrorCode::corrupt, "kv-array: an array of arrays"},
      {"ArrayKind", with(RawGguf().kv("k", 9, little_endian(77, 4) + raw.length(1))),
       ErrorCode::corrupt, "kv-type: value type 77"},
      {"Alignment0", with(RawGguf().kv_u32("general.alignment", 0)), ErrorCode::corrupt,
       "alignment: 0, expected a power of two"},
      {"Alignment3", with(RawGguf().kv_u32("general.alignment", 3)), ErrorCode::corrupt,
       "alignment: 3, expected a power of two", R"(f.gguf: key "general.alignment")"},
      {"AlignmentType", with(RawGguf().kv("general.alignment", 10, little_endian(32, 8))),
       ErrorCode::corrupt, "alignment: of type u64, expected u32"},
      {"AlignmentArray", with(RawGguf().kv("general.alignment", 9, one + raw.length(1) + " ")),
       ErrorCode::corrupt, "alignment: of type array of i8, expected u32"},
  };
}

std::vector<BadFile> bad_tensors() {
  constexpr std::uint64_t int64_max = std::numeric_limits<std::int64_t>::max();
  const auto one = [](const std::vector<std::uint64_t>& dims, std::uint32_t type = 0,
                      std::uint64_t offset = 0) {
    return RawGguf().tensor("t", dims, type, offset).data(std::string(64, 'x')).build();
  };
  const auto dims_count = [](std::uint32_t count) {
    RawGguf raw;
    raw.tensor_raw(raw.string("t") + little_endian(count, 4) + std::string(64, '\1'));
    return raw.build();
  };
  const std::string t = R"(f.gguf: tensor "t")";
  RawGguf twice;
  twice.tensor("t", {4}, 0, 0).tensor("t", {4}, 0, 32).data(std::string(64, 'x'));
  std::string short_file = three_tensors().build();
  short_file.pop_back();
  return {
      {"Dims0", dims_count(0), ErrorCode::corrupt, "tensor-dims: 0 dimensions, expected 1 to 4", t},
      {"Dims5", dims_count(5), ErrorCode::corrupt, "tensor-dims: 5 dimensions, expected 1 to 4", t},
      {"DimsMax", dims_count(0xFFFFFFFF), ErrorCode::corrupt, "4294967295 dimensions", t},
      {"DimZero", one({4, 0}), ErrorCode::corrupt, "tensor-dims: dimension 1 is 0", t},
      {"DimNegative", one({~std::uint64_t{0}}), ErrorCode::corrupt,
       "tensor-dims: dimension 0 is 18446744073709551615, expected 1 to 2^63 - 1", t},
      {"Product", one({int64_max, 2}), ErrorCode::corrupt,
       "overflow: 9223372036854775807 times dimension 1 of 2 is above 2^63 - 1", t},
      {"Bytes", one({int64_max}), ErrorCode::corrupt,
       "overflow: 9223372036854775807 blocks of 4 bytes are above 2^63 - 1", t},
      {"BytesFit", one({int64_max / 4}), ErrorCode::corrupt,
       "data-incomplete: bytes 0 to 9223372036854775804 of the data, but the file has only 64", t},
      {"TypeMinus1", one({4}, 0xFFFFFFFF), ErrorCode::corrupt,
       "tensor-type: type 4294967295, expected below 2^31", t},
      {"Block", one({33}, 2), ErrorCode::corrupt,
       "tensor-block: rows of 33 elements, but a block of Q4_0 has 32", t},
      {"BlockOfEveryMeaning", one({32}, 42), ErrorCode::corrupt,
       "rows of 32 elements, but a block of Q2_0 has 64", t},
      {"Offset", one({4}, 0, 32), ErrorCode::corrupt,
       "offset: offset 32, expected 0, the padded sizes of the 0 tensors before", t},
      {"OffsetWraps", one({4}, 0, ~std::uint64_t{31}), ErrorCode::corrupt,
       "offset: offset 18446744073709551584, expected 0", t},
      {"Unaligned", one({4}, 99, 1), ErrorCode::corrupt, "offset: offset 1, expected 0", t},
      {"OpaqueWithoutData", RawGguf().tensor("t", {4}, 99, 0).build(), ErrorCode::corrupt,
       "offset: type 99 begins at 0 and the data behind it at 0", t},
      {"Twice", twice.build(), ErrorCode::corrupt, "tensor-twice: the name of tensor 1", t},
      {"NameEmpty", RawGguf().tensor("", {4}, 0, 0).data(std::string(16, 'x')).build(),
       ErrorCode::corrupt, "tensor-name: a name of 0 bytes, expected 1 to 63", "f.gguf: tensor 0"},
      {"NameLong",
       RawGguf().tensor(std::string(64, 'n'), {4}, 0, 0).data(std::string(16, 'x')).build(),
       ErrorCode::corrupt, "a name of 64 bytes, expected 1 to 63", "f.gguf: tensor 0"},
      {"NameUtf8", RawGguf().tensor("\xC0n", {4}, 0, 0).data(std::string(16, 'x')).build(),
       ErrorCode::corrupt, "is no UTF-8", "f.gguf: tensor 0"},
      {"OneByteShort", short_file, ErrorCode::corrupt,
       "data-incomplete: bytes 96 to 101 of the data, but the file has only 100",
       R"(f.gguf: tensor "c")"},
  };
}

std::vector<BadFile> all_bad_files() {
  std::vector<BadFile> all = bad_starts();
  for (auto& more : {bad_values(), bad_tensors()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

class GgufRefuses : public testing::TestWithParam<BadFile> {};

TEST_P(GgufRefuses, WithItsRuleAndNumbers) {
  const Error error = refusal(GetParam().file);
  EXPECT_EQ(error.code, GetParam().code);
  EXPECT_THAT(error.what, HasSubstr(GetParam().what));
  EXPECT_THAT(error.where, testing::StartsWith(GetParam().where));
}

INSTANTIATE_TEST_SUITE_P(Gguf, GgufRefuses, testing::ValuesIn(all_bad_files()),
                         [](const auto& bad) { return bad.param.name; });

// A copy without spare bytes behind it, so that a sanitizer sees any read past the end.
Result<GgufHeader> parse_exact(std::string_view file) {
  const std::vector<char> exact(file.begin(), file.end());
  auto header = parse_gguf(std::as_bytes(std::span(exact)), "f.gguf");
  if (!header) return header;
  for (const auto& entry : header->metadata.entries()) entry.value.text();
  for (const TensorInfo& info : header->tensors) {
    EXPECT_LE(info.file_offset, file.size());
    EXPECT_LE(info.bytes, file.size() - info.file_offset);
  }
  header->metadata = {};  // its values lie in `exact`
  return header;
}

TEST(Gguf, EveryTruncationIsRefused) {
  for (const std::uint32_t version : {1U, 3U}) {
    const std::string file = three_tensors(version).build();
    for (std::size_t size = 0; size < file.size(); ++size) {
      const auto header = parse_exact(std::string_view(file).substr(0, size));
      ASSERT_FALSE(header) << size;
      EXPECT_EQ(header.error().code, ErrorCode::corrupt) << size;
      EXPECT_FALSE(header.error().what.empty());
    }
  }
}

// Any value of any byte of the header: an error, or a header whose tensors lie in the file.
TEST(Gguf, NoCorruptByteOfTheHeaderLeadsOutOfTheFile) {
  RawGguf raw = three_tensors();
  raw.kv("names", 9, little_endian(8, 4) + raw.length(2) + raw.string("x") + raw.string("yz"));
  raw.kv_u32("general.alignment", 32);
  const std::string good = raw.build();
  const std::size_t header_size = raw.header().size();
  int refused = 0;
  for (std::size_t at = 0; at < header_size; ++at) {
    std::string file = good;
    for (int value = 0; value < 256; ++value) {
      file[at] = static_cast<char>(value);
      if (!parse_exact(file)) ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(header_size) * 100);
}

}  // namespace
}  // namespace fewbit
