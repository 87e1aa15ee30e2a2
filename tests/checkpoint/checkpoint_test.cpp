// SPDX-License-Identifier: Apache-2.0
#include "fewbit/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "checkpoint/json.hpp"
#include "checkpoint/raw_safetensors.hpp"
#include "checkpoint/scratch_folder.hpp"
#include "checkpoint/shard_names.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

constexpr std::string_view index_file = "model.safetensors.index.json";

// A file of U8 tensors of 4 bytes each, holding their own name's first letter.
std::string shard_of(std::initializer_list<std::string_view> names) {
  std::string header = "{";
  std::string data;
  for (const std::string_view name : names) {
    if (!data.empty()) header += ",";
    header +=
        raw_entry(name, "U8", "[4]",
                  "[" + std::to_string(data.size()) + "," + std::to_string(data.size() + 4) + "]");
    data += std::string(4, name.front());
  }
  return raw_safetensors(header + "}", data);
}

std::string text_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.view.bytes.data()), tensor.view.bytes.size()};
}

std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const TensorInfo& info : checkpoint.tensors()) names.push_back(info.name);
  return names;
}

Error open_error(const std::filesystem::path& path) {
  const auto checkpoint = Checkpoint::open(path);
  EXPECT_FALSE(checkpoint);
  return checkpoint ? Error{} : checkpoint.error();
}

// Two shards with tensors a, c and b.
ScratchFolder& two_shards(ScratchFolder& folder,
                          std::string_view metadata = R"({"total_size":12})") {
  folder.write("model-00001-of-00002.safetensors", shard_of({"a", "c"}));
  folder.write("model-00002-of-00002.safetensors", shard_of({"b"}));
  folder.write(index_file, "{\"metadata\":" + std::string(metadata) + R"(,"weight_map":{
    "a":"model-00001-of-00002.safetensors",
    "b":"model-00002-of-00002.safetensors",
    "c":"model-00001-of-00002.safetensors"}})");
  return folder;
}

TEST(Checkpoint, ShardsReadAsOneSortedList) {
  ScratchFolder folder;
  two_shards(folder);
  for (const auto& path : {folder.path(), folder / index_file}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    EXPECT_THAT(names_of(*checkpoint), ElementsAre("a", "b", "c"));
    EXPECT_EQ(text_of(*checkpoint->tensor("a")), "aaaa");
    EXPECT_EQ(text_of(*checkpoint->tensor("b")), "bbbb");
    EXPECT_EQ(text_of(*checkpoint->tensor("c")), "cccc");
    EXPECT_EQ(checkpoint->total_bytes(), 12U);
    EXPECT_EQ(checkpoint->directory(), folder.path());
    EXPECT_EQ(checkpoint->shards().size(), 2U);
    EXPECT_TRUE(checkpoint->findings().empty());
    EXPECT_EQ(checkpoint->find("d"), nullptr);
    EXPECT_EQ(checkpoint->tensor("d").error().code, ErrorCode::not_found);
  }
}

TEST(Checkpoint, TensorsOutliveTheCheckpointAndReleasedPagesStayReadable) {
  ScratchFolder folder;
  const auto path =
      folder.write("model.safetensors",
                   raw_safetensors("{" + raw_entry("t", "U8", "[100000]", "[0,100000]") + "}",
                                   std::string(100000, 'x')));
  Tensor tensor;
  {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    tensor = *checkpoint->tensor("t");
    checkpoint->release(*checkpoint->find("t"));
  }
  std::filesystem::remove(path);
  EXPECT_EQ(text_of(tensor), std::string(100000, 'x'));
}

TEST(CheckpointIndex, MissingShardsAreAllNamed) {
  ScratchFolder folder;
  two_shards(folder);
  std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
  const Error one = open_error(folder.path());
  EXPECT_EQ(one.code, ErrorCode::not_found);
  EXPECT_THAT(one.what,
              HasSubstr("1 of 2 shards do not exist: \"model-00002-of-00002.safetensors\""));
  std::filesystem::remove(folder / "model-00001-of-00002.safetensors");
  EXPECT_THAT(open_error(folder.path()).what, HasSubstr("2 of 2 shards do not exist"));
}

TEST(CheckpointIndex, TensorThatItsShardLacks) {
  ScratchFolder folder;
  two_shards(folder);
  folder.write("model-00001-of-00002.safetensors", shard_of({"a"}));
  const Error error = open_error(folder.path());
  EXPECT_EQ(error.code, ErrorCode::inconsistent);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr(index_file), HasSubstr("index-tensor-missing: 1 of 3 tensors"),
                    HasSubstr("\"c\" is not in \"model-00001-of-00002.safetensors\"")));
}

TEST(CheckpointIndex, TensorInAnotherShardThanTheIndexSays) {
  ScratchFolder folder;
  two_shards(folder);
  folder.write("model-00001-of-00002.safetensors", shard_of({"a"}));
  folder.write("model-00002-of-00002.safetensors", shard_of({"b", "c"}));
  const Error error = open_error(folder.path());
  EXPECT_EQ(error.code, ErrorCode::inconsistent);
  EXPECT_THAT(error.what, HasSubstr("\"c\" is in \"model-00002-of-00002.safetensors\", not in "
                                    "\"model-00001-of-00002.safetensors\""));
}

TEST(CheckpointIndex, TensorInTwoShards) {
  ScratchFolder folder;
  two_shards(folder);
  folder.write("model-00002-of-00002.safetensors", shard_of({"b", "c"}));
  const Error error = open_error(folder.path());
  EXPECT_EQ(error.code, ErrorCode::inconsistent);
  EXPECT_THAT(error.what, AllOf(HasSubstr("tensor-twice: \"c\""), HasSubstr("model-00001-of-00002"),
                                HasSubstr("model-00002-of-00002")));
}

TEST(CheckpointIndex, TensorsThatTheIndexOmitsAreAnErrorFindingAndStillListed) {
  ScratchFolder folder;
  two_shards(folder, "{}");
  folder.write("model-00002-of-00002.safetensors", shard_of({"b", "d", "e"}));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_THAT(names_of(*checkpoint), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(
      checkpoint->findings(),
      ElementsAre(AllOf(Field(&Finding::level, Level::error),
                        Field(&Finding::rule, "index-tensor-unlisted"),
                        Field(&Finding::where, "model-00002-of-00002.safetensors"),
                        Field(&Finding::found, HasSubstr("2 tensors that the index does not "
                                                         "list: \"d\", \"e\"")))));
}

TEST(CheckpointIndex, StaleTotalSizeIsAWarning) {
  ScratchFolder folder;
  two_shards(folder, R"({"total_size":24})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_THAT(checkpoint->findings(),
              ElementsAre(AllOf(Field(&Finding::level, Level::warning),
                                Field(&Finding::rule, "index-total-size"),
                                Field(&Finding::found, "metadata.total_size 24"),
                                Field(&Finding::expected, HasSubstr("12")))));
}

TEST(CheckpointIndex, OddMetadataIsAWarningWithItsValue) {
  for (const auto& [metadata, rule, found] :
       {std::tuple(R"([1,2])", "index-metadata", "metadata is [1,2]"),
        std::tuple(R"({"total_size":"12"})", "index-total-size", "total_size is \"12\""),
        std::tuple(R"({"total_size":-12})", "index-total-size", "total_size is -12"),
        std::tuple(R"({"total_size":11.5})", "index-total-size", "total_size is 11.5")}) {
    ScratchFolder folder;
    two_shards(folder, metadata);
    const auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    EXPECT_THAT(
        checkpoint->findings(),
        ElementsAre(AllOf(Field(&Finding::level, Level::warning), Field(&Finding::rule, rule),
                          Field(&Finding::found, HasSubstr(found)))));
  }
}

TEST(ShardNames, NumbersOutsideTheCountAndOtherCountsAreFindings) {
  const auto found = [](std::vector<std::filesystem::path> files) {
    std::vector<Finding> findings;
    check_shard_names(files, files.size(), findings);
    std::string text;
    for (const Finding& finding : findings) text += finding.found + "|" + finding.expected + "\n";
    return text;
  };
  EXPECT_EQ(found({"m-1-of-2.safetensors", "m-2-of-2.safetensors", "n-1-of-3.safetensors"}), "");
  EXPECT_EQ(found({"m-0-of-2.safetensors", "m-1-of-2.safetensors", "m-of-2", "best-of-3"}), "");
  EXPECT_EQ(found({"m-00000-of-00000.safetensors"}),
            "shard 0 of 0 by its name|a number of shards of at least 1\n");
  EXPECT_EQ(found({"m-00002-of-00001.gguf"}), "shard 2 of 1 by its name|a number from 1 to 1\n");
  EXPECT_EQ(found({"m-1-of-2.gguf", "m-2-of-3.gguf", "m-3-of-3.gguf"}),
            "3 shards by the name \"m-2-of-3.gguf\"|2, as \"m-1-of-2.gguf\" says\n");
  EXPECT_EQ(found({"m-0-of-2.gguf", "m-2-of-2.gguf"}), "shards 0 and 2 of 2|numbers from 1 to 2\n");
  EXPECT_EQ(found({"m-99999999999999999999999-of-2.gguf"}),
            "shard 18446744073709551615 of 2 by its name|a number from 1 to 2\n");
}

TEST(CheckpointIndex, StrayFileBesideTheShardsIsReportedAndNotRead) {
  ScratchFolder folder;
  two_shards(folder);
  folder.write("model.safetensors", "not even a safetensors file");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_THAT(
      checkpoint->findings(),
      ElementsAre(AllOf(Field(&Finding::level, Level::info), Field(&Finding::rule, "extra-file"),
                        Field(&Finding::where, HasSubstr("/model.safetensors")))));
}

TEST(CheckpointIndex, FileNamesThatLeaveTheFolderAreRefused) {
  for (const std::string name :
       {"../model.safetensors", "/etc/passwd", "a/../../b", "", "a\\u0000b", "..", "sub/"}) {
    ScratchFolder folder;
    folder.write(index_file, "{\"weight_map\":{\"t\":\"" + name + "\"}}");
    const Error error = open_error(folder.path());
    EXPECT_EQ(error.code, ErrorCode::corrupt) << name;
    EXPECT_THAT(error.what, HasSubstr("not below the folder")) << name;
  }
}

TEST(CheckpointIndex, MalformedIndexIsRefused) {
  for (const std::string_view text :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"t":1}})",
        R"({"weight_map":{"t":"a","t":"b"}})"}) {
    ScratchFolder folder;
    folder.write(index_file, text);
    const Error error = open_error(folder.path());
    EXPECT_EQ(error.code, ErrorCode::corrupt) << text;
    EXPECT_THAT(error.where, HasSubstr(index_file));
  }
}

TEST(CheckpointIndex, OneShardNamedInTwoWaysIsOneShard) {
  ScratchFolder folder;
  folder.write("s.safetensors", shard_of({"a", "b"}));
  folder.write(index_file, R"({"weight_map":{"a":"s.safetensors","b":"./s.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_EQ(checkpoint->shards().size(), 1U);
}

TEST(CheckpointFolder, ChoosesIndexThenModelThenTheOnlyFile) {
  ScratchFolder folder;
  EXPECT_EQ(open_error(folder.path()).code, ErrorCode::not_found);
  folder.write("x.safetensors", shard_of({"x"}));
  EXPECT_THAT(names_of(*Checkpoint::open(folder.path())), ElementsAre("x"));
  folder.write("y.safetensors", shard_of({"y"}));
  const Error several = open_error(folder.path());
  EXPECT_EQ(several.code, ErrorCode::not_found);
  EXPECT_THAT(several.what, HasSubstr("found 2: \"x.safetensors\", \"y.safetensors\""));
  folder.write("model.safetensors", shard_of({"m"}));
  const auto model = Checkpoint::open(folder.path());
  EXPECT_THAT(names_of(*model), ElementsAre("m"));
  EXPECT_EQ(model->findings().size(), 2U);  // x and y are extra
  folder.write(index_file, R"({"weight_map":{"x":"x.safetensors"}})");
  EXPECT_THAT(names_of(*Checkpoint::open(folder.path())), ElementsAre("x"));
}

TEST(CheckpointFolder, OneOfSeveralShardsWithoutIndexIsAnErrorFinding) {
  ScratchFolder folder;
  const auto path = folder.write("model-00002-of-00003.safetensors", shard_of({"x"}));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint);
  EXPECT_THAT(
      checkpoint->findings(),
      ElementsAre(AllOf(Field(&Finding::rule, "shard-alone"), Field(&Finding::level, Level::error),
                        Field(&Finding::expected, HasSubstr("3 shards")))));
  const auto asked_for = Checkpoint::open(path);
  ASSERT_TRUE(asked_for);
  EXPECT_THAT(asked_for->findings(), ElementsAre(AllOf(Field(&Finding::rule, "shard-alone"),
                                                       Field(&Finding::level, Level::info))));
  for (const char* name : {"model-00001-of-00001.safetensors", "best-of-3.safetensors"}) {
    const auto whole = Checkpoint::open(folder.write(name, shard_of({"x"})));
    ASSERT_TRUE(whole);
    EXPECT_TRUE(whole->findings().empty()) << name;
  }
}

TEST(CheckpointFolder, WhatIsNoFileIsRefused) {
  ScratchFolder folder;
  EXPECT_EQ(open_error(folder / "absent").code, ErrorCode::not_found);
  EXPECT_THAT(open_error("/dev/null").what, HasSubstr("expected a regular file, found a device"));
  std::filesystem::create_directory(folder / "model.safetensors");
  EXPECT_THAT(open_error(folder.path()).what,
              HasSubstr("expected a regular file, found a directory"));
}

TEST(CheckpointJsonFile, ReadsStrictlyAndOnlyBelowTheFolder) {
  ScratchFolder folder;
  folder.write("model.safetensors", shard_of({"m"}));
  folder.write("config.json", R"({"model_type":"tiny"})");
  folder.write("twice.json", R"({"a":1,"a":2})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint);
  const auto config = checkpoint->json_file("config.json");
  ASSERT_TRUE(config);
  EXPECT_EQ(*(*config)->find("model_type")->as_string(), "tiny");
  const auto absent = checkpoint->json_file("absent.json");
  ASSERT_TRUE(absent);
  EXPECT_EQ(*absent, nullptr);
  EXPECT_EQ(checkpoint->json_file("twice.json").error().code, ErrorCode::corrupt);
  EXPECT_EQ(checkpoint->json_file("../config.json").error().code, ErrorCode::invalid_argument);
}

// A cleaned cache leaves such links; what they led to may change what the model is.
TEST(CheckpointFolder, LinksToNothingAreNotTakenForAbsentFiles) {
  ScratchFolder folder;
  folder.write("model.safetensors", shard_of({"m"}));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint);
  std::filesystem::create_symlink("nowhere", folder / "hf_quant_config.json");
  const auto config = checkpoint->json_file("hf_quant_config.json");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().what, "a link to nothing");
  EXPECT_THAT(config.error().where, HasSubstr("hf_quant_config.json"));
  std::filesystem::create_symlink("nowhere", folder / "model.safetensors.index.json");
  const Error error = open_error(folder.path());
  EXPECT_EQ(error.code, ErrorCode::not_found);
  EXPECT_THAT(error.message(), HasSubstr("model.safetensors.index.json"));
}

TEST(CheckpointMetadata, IsMergedAndDifferencesAreFindings) {
  ScratchFolder folder;
  folder.write("1.safetensors", raw_safetensors("{\"__metadata__\":{\"format\":\"pt\"}," +
                                                    raw_entry("a", "U8", "[1]", "[0,1]") + "}",
                                                "a"));
  folder.write("2.safetensors",
               raw_safetensors("{\"__metadata__\":{\"format\":\"np\",\"k\":\"v\"}," +
                                   raw_entry("b", "U8", "[1]", "[0,1]") + "}",
                               "b"));
  folder.write(index_file, R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_EQ(checkpoint->metadata().at("format"), "pt");
  EXPECT_EQ(checkpoint->metadata().at("k"), "v");
  EXPECT_THAT(checkpoint->findings(), ElementsAre(Field(&Finding::rule, "metadata-differs")));
}

}  // namespace
}  // namespace fewbit
