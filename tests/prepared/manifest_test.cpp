// SPDX-License-Identifier: Apache-2.0
#include "prepared/manifest.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "backends/moe_case.hpp"
#include "checkpoint/json.hpp"
#include "checkpoint/scratch_folder.hpp"
#include "paths.hpp"
#include "prepared/layer_file.hpp"
#include "select/backend.hpp"

namespace fewbit {
namespace {

PreparedManifest example() {
  const test::LayerSpec spec{
      .experts = 3,
      .hidden_size = 48,
      .intermediate_size = 80,
      .weight = DType::f4_e2m1,
      .activation = {.kind = Activation::swigluoai, .alpha = 1.702F, .beta = 1, .limit = 7.1F}};
  const MoeWeights weights = test::random_weights(spec);
  PreparedLayerInfo layer;
  layer.layer = 4;
  layer.file = "prepared/layer-00004.safetensors";
  layer.backend = "cpu_generic";
  layer.problem = test::problem_of(spec, 2, 1);
  layer.problem.where = "model.layers.4.mlp.experts";
  layer.plan = *find_backend("cpu_generic")->plan_moe(layer.problem, weights.experts[0]);
  layer.first_expert = 3;
  layer.all_experts = 6;
  layer.all_features = 80;
  const std::string hash(32, 'a');
  return {.split = {.tensor_ranks = 1, .expert_ranks = 2, .rank = 1},
          .source_hash = hash,
          .source = {{.name = "model.safetensors", .bytes = 12, .hash = hash, .of_header = true}},
          .layers = {layer},
          .files = {{.name = layer.file, .bytes = 34, .hash = hash}}};
}

Result<PreparedManifest> parsed(const std::string& text) {
  FEWBIT_TRY(const Json json, Json::parse(text, "m.json"));
  return parse_manifest(json, "m.json");
}

// Else the fuzz target begins with what is refused at once.
TEST(Manifest, SeedsOfTheFuzzTargetAreRead) {
  int seeds = 0;
  for (const auto& seed :
       std::filesystem::directory_iterator(tests::source_dir() / "tests/fuzz/corpus/prepared")) {
    const auto json = Json::parse(file_content(seed.path()), seed.path().string());
    ASSERT_TRUE(json) << json.error().message();
    const auto manifest = parse_manifest_fields(*json, seed.path().string());
    ASSERT_TRUE(manifest) << manifest.error().message();
    EXPECT_EQ(manifest->layers.size(), 1U);
    EXPECT_TRUE(plan_layer_file(manifest->layers[0]));
    ++seeds;
  }
  EXPECT_GT(seeds, 0);
}

// Of a shard only the header is hashed, which the name says; manifests of before call it xxh3_128.
TEST(Manifest, NamesTheHashOfAHeader) {
  PreparedManifest manifest = example();
  manifest.source.push_back({.name = "config.json", .bytes = 3, .hash = std::string(32, 'b')});
  const auto names = [](const PreparedManifest& of) {
    const Json json = manifest_json(of);
    std::vector<std::string> keys;
    for (const Json& file : *json.find("source")->find("files")->as_array()) {
      keys.push_back(file.as_object()->back().first);
    }
    return keys;
  };
  for (const bool of_header : {true, false}) {
    manifest.source[0].of_header = of_header;
    const char* key = of_header ? "header_xxh3_128" : "xxh3_128";
    EXPECT_EQ(names(manifest), (std::vector<std::string>{key, "xxh3_128"}));
    const auto back = parsed(manifest_json(manifest).dump());
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(back->source[0].of_header, of_header);
    EXPECT_EQ(back->source[0].hash, manifest.source[0].hash);
    EXPECT_EQ(names(*back), names(manifest));
  }
  // The output's own files are hashed whole.
  manifest.files[0].of_header = true;
  EXPECT_FALSE(parsed(manifest_json(manifest).dump()));
}

TEST(Manifest, SurvivesJsonExactly) {
  const PreparedManifest manifest = example();
  const auto back = parsed(manifest_json(manifest).dump());
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(manifest_json(*back).dump(), manifest_json(manifest).dump());
  const MoeProblem& a = manifest.layers[0].problem;
  const MoeProblem& b = back->layers[0].problem;
  EXPECT_EQ(a.gate_up, b.gate_up);
  EXPECT_EQ(a.down, b.down);
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(manifest.layers[0].plan, back->layers[0].plan);
  EXPECT_EQ(back->split, manifest.split);
}

// Each hostile value is named by its path, with what was expected.
TEST(Manifest, RefusesEveryFieldOutOfItsRange) {
  const std::string good = manifest_json(example()).dump();
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  struct Case {
    const char* from;
    const char* to;
    const char* error;
  };
  const Case cases[] = {
      {R"("format":"fewbit-prepared")", R"("format":"x")", "format: expected"},
      {R"("version":2)", R"("version":1)", "version 1, this fewbit reads version 2"},
      {R"("version":2)", R"("version":"2")", "version: expected an integer"},
      {R"("rank":1)", R"("rank":2)", "split.rank: expected an integer from 0 to 1, found 2"},
      {R"("tensor_ranks":1)", R"("tensor_ranks":0)", "split.tensor_ranks: expected"},
      {R"("hidden_size":48)", R"("hidden_size":-1)",
       "layers[0].problem.hidden_size: expected an integer from 1 to 2147483647, found -1"},
      {R"("hidden_size":48)", R"("hidden_size":1e99)", "layers[0].problem.hidden_size: expected"},
      {R"("num_experts":3)", R"("num_experts":4000000000)", "layers[0].problem.num_experts"},
      {R"("num_experts":3)", R"("num_experts":7)", "layers[0].all_experts: expected"},
      {R"("first_expert":3)", R"("first_expert":4)",
       "layers[0].first_expert: expected an integer from 0 to 3, found 4"},
      {R"("weight":"f4_e2m1")", R"("weight":"f9")", "layers[0].problem.gate_up.weight: expected"},
      {R"("packing":"nibbles_k")", R"("packing":7)", "layers[0].problem.gate_up.packing: expected"},
      {R"("kind":"swigluoai")", R"("kind":"tanh")", "layers[0].problem.activation.kind: expected"},
      {R"("use":"packed")", R"("use":"odd")", "layers[0].buffers[0].use: expected one of packed"},
      {R"("alignment":64)", R"("alignment":48)", "alignment 48, expected a power of two"},
      {R"("shape":[)", R"("shape":[9223372036854775807,9,)", "layers[0].buffers[0].shape"},
      {R"("shape":[)", R"("shape":[-5,)", "layers[0].buffers[0].shape: expected integers from 0"},
      {R"("name":"gate.scales")", R"("name":"gate.codes")", "planned twice"},
      {R"("file":"prepared/layer-00004.safetensors")", R"("file":"../../etc/passwd")",
       "layers[0].file: expected a file name below the folder"},
      {R"("file":"prepared/layer-00004.safetensors")", R"("file":"other")",
       "file \"other\" of layer 4 is not among the 1 files"},
      {R"("name":"prepared/layer-00004.safetensors")", R"("name":"/etc/passwd")",
       "files[0].name: expected a file name below the folder"},
      {R"("bytes":34)", R"("bytes":-1)", "files[0].bytes: expected"},
      {R"("bytes":34)", R"("bytes":18446744073709551616)", "files[0].bytes: expected"},
      {R"("xxh3_128":"a)", R"("xxh3_128":"b)", "xxh3_128: \""},
      {R"("layers":[)", R"("layers":[],"other":[)", "layers: none, expected at least one"},
      {R"("first_expert":3)", R"("first_expert":2)",
       "layers: experts 2 to 4 of 6 of layer 4 are not those of rank 1 of 2"},
      {R"("first_feature":0)", R"("first_feature":-1)", "layers[0].first_feature: expected"},
      {R"("all_features":80)", R"("all_features":96)",
       "layers: features 0 to 79 of 96 of layer 4 are not those of rank 0 of 1"},
      {R"("token_exchange":"none")", R"("token_exchange":"post")",
       "layers[0].problem.router.token_exchange: expected one of none, allgather"},
      {R"("top_k":2)", R"("top_k":1)", "one was changed"},
      {R"("layers":[)", R"("layers":[7,)", "layers[0]: expected an object, found 7"},
      {R"("layers":[)", R"("layers":3,"other":[)", "layers: expected an array of objects, found 3"},
  };
  for (const Case& each : cases) {
    const auto manifest = parsed(replaced(each.from, each.to));
    ASSERT_FALSE(manifest) << each.to;
    EXPECT_NE(manifest.error().message().find(each.error), std::string::npos)
        << manifest.error().message();
    EXPECT_EQ(manifest.error().where.substr(0, 6), "m.json");
  }
}

// Every member decides the hash; spaces and the order of members don't.
TEST(Manifest, HasTheHashOfWhatItSays) {
  const PreparedManifest manifest = example();
  EXPECT_TRUE(parsed(manifest_json(manifest).dump(3)));
  PreparedManifest other = manifest;
  other.layers[0].problem.router_weight_side = RouterWeightSide::input;
  const auto hash = [](const PreparedManifest& of) {
    return *manifest_json(of).find("xxh3_128")->as_string();
  };
  EXPECT_NE(hash(manifest), hash(other));
  Json mixed = manifest_json(other);
  mixed.set("xxh3_128", hash(manifest));
  const auto refused = parsed(mixed.dump());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "m.json: xxh3_128: \"" + hash(manifest) +
                                           "\", but the fields have \"" + hash(other) +
                                           "\": one was changed");
  mixed.set("xxh3_128", "");
  EXPECT_FALSE(parsed(mixed.dump()));
}

// No cut of the text is taken for a manifest, and none does harm.
TEST(Manifest, RefusesEveryTruncation) {
  const std::string good = manifest_json(example()).dump();
  for (std::size_t size = 0; size < good.size(); size += 7) {
    EXPECT_FALSE(parsed(good.substr(0, size))) << size;
  }
}

TEST(LayerFile, HoldsEveryBufferAtItsAlignmentAndIsRefusedWhenItDoesNotFit) {
  const PreparedLayerInfo layer = example().layers[0];
  const LayerFile plan = *plan_layer_file(layer);
  std::string content = plan.header;
  content.resize(plan.bytes, '\1');
  const ScratchFolder folder;
  const auto map = [&](const PreparedLayerInfo& info, const std::string& bytes) {
    return map_layer(info, *MappedFile::open(folder.write("layer.safetensors", bytes)));
  };
  const auto memory = map(layer, content);
  ASSERT_TRUE(memory) << memory.error().message();
  EXPECT_TRUE(check_memory(layer.plan, *memory, "test"));
  for (std::size_t i = 0; i < plan.begin.size(); ++i) EXPECT_EQ(plan.begin[i] % 64, 0U) << i;

  const auto cut = map(layer, content.substr(0, content.size() - 1));
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::corrupt);
  EXPECT_NE(cut.error().message().find("layer.safetensors"), std::string::npos);

  PreparedLayerInfo other = layer;
  other.plan.buffers[0].layout = "marlin";
  const auto renamed = map(other, content);
  ASSERT_FALSE(renamed);
  EXPECT_NE(renamed.error().message().find("gate.codes:marlin\": missing among"),
            std::string::npos);
  other = layer;
  other.plan.experts = 2;
  const auto fewer = map(other, content);
  ASSERT_FALSE(fewer);
  EXPECT_NE(fewer.error().message().find("fewbit_prepared.json says u8 [2, "), std::string::npos);
}

}  // namespace
}  // namespace fewbit
