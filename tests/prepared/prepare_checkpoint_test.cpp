// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>

#include "checkpoint/scratch_folder.hpp"
#include "fewbit/model.hpp"
#include "fewbit/prepare.hpp"
#include "model/tiny_model.hpp"
#include "prepared/manifest.hpp"
#include "prepared/prepared_readers.hpp"
#include "prepared/source_files.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

class PrepareCheckpoint : public testing::Test {
 protected:
  PrepareCheckpoint() {
    test::TinyConfig config;
    config.layers = 3;
    config.dense_layer = 1;
    const test::TinyModel tiny(config);
    EXPECT_TRUE(tiny.write(source_path()));
  }

  fs::path source_path() const { return folder_ / "source"; }
  Checkpoint source() const { return *Checkpoint::open(source_path()); }
  Result<PrepareReport> prepare(const char* name, const PrepareOptions& options = {},
                                int threads = 1) const {
    const auto pool = *make_thread_pool(threads);
    return prepare_checkpoint(source(), folder_ / name, options, *pool);
  }
  std::map<std::string, std::string> content(const char* name) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / name)) {
      if (!entry.is_regular_file()) continue;
      files[fs::relative(entry.path(), folder_ / name).string()] = file_content(entry.path());
    }
    return files;
  }

  ScratchFolder folder_;
};

TEST_F(PrepareCheckpoint, GivesTheSameBytesForAnyNumberOfThreads) {
  const auto one = prepare("one");
  ASSERT_TRUE(one) << one.error().message();
  EXPECT_EQ(one->layers, 2);  // the other is dense
  EXPECT_EQ(one->experts, 8);
  for (const int threads : {2, 4}) {
    const std::string name = std::to_string(threads);
    ASSERT_TRUE(prepare(name.c_str(), {}, threads));
    EXPECT_EQ(content(name.c_str()), content("one"));
  }
}

TEST_F(PrepareCheckpoint, AModelGivesTheSameBits) {
  ASSERT_TRUE(prepare("out", {}, 2));
  ModelOptions options;
  options.activation_dtype = DType::f32;
  std::vector<std::int32_t> ids(40);
  std::iota(ids.begin(), ids.end(), 0);
  const auto logits = [&](const fs::path& path) {
    const auto model = Model::load(path, options, *make_thread_pool(2));
    EXPECT_TRUE(model) << model.error().message();
    auto sequence = *model->new_sequence(64);
    return *model->forward(sequence, ids, Model::Logits::all);
  };
  EXPECT_EQ(logits(folder_ / "out"), logits(source_path()));
}

// As the model runs them: exporters write zeros beside every matrix, or beside some.
TEST_F(PrepareCheckpoint, BiasesOfZeroAreNone) {
  for (const float bias : {0.0F, -0.0F, 0.5F}) {
    const int first = std::signbit(bias) ? 2 : 0;  // expert with one
    test::TinyModel tiny(test::TinyConfig{});
    const std::int64_t width = tiny.config().expert_width;
    for (int layer = 0; layer < 2; ++layer) {
      for (int expert = first; expert < 4; ++expert) {
        const std::string name = "model.layers." + std::to_string(layer) + ".mlp.experts." +
                                 std::to_string(expert) + ".up_proj.bias";
        tiny.tensors()[name] = {.dtype = DType::f32,
                                .shape = {width},
                                .values = std::vector<float>(static_cast<std::size_t>(width))};
      }
    }
    tiny.tensors()["model.layers.1.mlp.experts.3.up_proj.bias"].values.back() = bias;
    fs::remove_all(source_path());
    ASSERT_TRUE(tiny.write(source_path()));
    PrepareOptions options;
    options.verify = true;
    const auto report = prepare("out", options);
    if (bias == 0.0F) {
      ASSERT_TRUE(report) << report.error().message();
      EXPECT_FALSE(read_manifest(folder_ / "out")->layers[0].problem.biases);
      fs::remove_all(folder_ / "out");
      continue;
    }
    ASSERT_FALSE(report);
    EXPECT_NE(report.error().message().find("bias-unsupported  model.layers.1.mlp.experts.3"),
              std::string::npos)
        << report.error().message();
  }
}

TEST_F(PrepareCheckpoint, CancelledAfterAnyTaskItGoesOnFromThere) {
  ASSERT_TRUE(prepare("want"));
  int interruptions = 0;
  for (int calls = 1; calls < 200; calls += 6, ++interruptions) {
    PrepareOptions options;
    int called = 0;
    options.progress = [&](std::uint64_t, std::uint64_t) { return ++called < calls; };
    const auto stopped = prepare("out", options);
    if (stopped) break;
    EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    options.progress = nullptr;
    const auto resumed = prepare("out", options);
    ASSERT_TRUE(resumed) << resumed.error().message();
    EXPECT_LT(resumed->packed_source_bytes, resumed->source_bytes);
    EXPECT_EQ(content("out"), content("want")) << calls;
    fs::remove_all(folder_ / "out");
  }
  EXPECT_GT(interruptions, 5);
}

TEST_F(PrepareCheckpoint, WhatWasNotedIsNotDoneAgain) {
  PrepareOptions options;
  // Stopped when all tasks are done, before the files are complete.
  std::uint64_t last_total = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    last_total = total;
    return done < total - 1;
  };
  ASSERT_FALSE(prepare("out", options));
  options.progress = nullptr;
  const auto resumed = prepare("out", options);
  ASSERT_TRUE(resumed) << resumed.error().message();
  EXPECT_EQ(resumed->resumed_experts, 8);
  EXPECT_EQ(resumed->packed_source_bytes, 0U);
  EXPECT_EQ(resumed->source_bytes, last_total);
}

TEST_F(PrepareCheckpoint, IsVerifiedAgainstItsSource) {
  ASSERT_TRUE(prepare("out"));
  const Checkpoint checkpoint = source();
  const auto pool = *make_thread_pool(4);
  const auto fine = verify_prepared(folder_ / "out", &checkpoint, nullptr, *pool);
  ASSERT_TRUE(fine) << fine.error().message();
  EXPECT_EQ(fine->experts, 8);
  // The source's weights change, its header does not.
  std::string bytes = file_content(source_path() / "model.safetensors");
  const auto name = std::string("model.layers.2.mlp.experts.3.up_proj.weight");
  const TensorInfo info = *checkpoint.find(name);
  bytes[info.file_offset + 5] ^= 1;
  folder_.write("source/model.safetensors", bytes);
  const Checkpoint changed = source();
  const auto differs = verify_prepared(folder_ / "out", &changed, nullptr, *pool);
  ASSERT_FALSE(differs);
  EXPECT_EQ(differs.error().message(),
            "model.layers.2.mlp.experts expert 3 up: codes differ from the source at byte 5 of " +
                std::to_string(info.bytes) + " (source " + std::to_string(info.bytes) + ")");
}

// Models of before call the hash of a shard's header that of the file.
TEST_F(PrepareCheckpoint, ManifestsOfBeforeAreComparedWithTheSource) {
  ASSERT_TRUE(prepare("out"));
  PreparedManifest manifest = *read_manifest(folder_ / "out");
  EXPECT_TRUE(manifest.source[0].of_header);
  EXPECT_FALSE(manifest.source.back().of_header);
  for (PreparedFile& file : manifest.source) file.of_header = false;
  folder_.write("out/fewbit_prepared.json", manifest_json(manifest).dump());
  const Checkpoint checkpoint = source();
  const auto pool = *make_thread_pool(1);
  const auto verified = verify_prepared(folder_ / "out", &checkpoint, nullptr, *pool);
  EXPECT_TRUE(verified) << verified.error().message();
}

// A text of the source is no part of the model: it may change, also while a run is interrupted.
TEST_F(PrepareCheckpoint, TextsOfTheSourceStayThere) {
  folder_.write("source/README.md", "of the source");
  folder_.write("source/LICENSE", "of the weights");
  folder_.write("source/generation_config.json", "{}");
  ASSERT_TRUE(prepare("out"));
  const auto files = content("out");
  EXPECT_FALSE(files.contains("README.md"));
  EXPECT_EQ(files.at("LICENSE"), "of the weights");
  EXPECT_TRUE(files.contains("generation_config.json"));
  const auto pool = *make_thread_pool(1);
  folder_.write("source/README.md", "another");
  const Checkpoint same = source();
  EXPECT_TRUE(verify_prepared(folder_ / "out", &same, nullptr, *pool));
  folder_.write("source/LICENSE", "another");
  const Checkpoint changed = source();
  const auto differs = verify_prepared(folder_ / "out", &changed, nullptr, *pool);
  ASSERT_FALSE(differs);
  EXPECT_NE(differs.error().what.find("not the source"), std::string::npos);
}

// Whatever this binary holds: packing is plain code. What is only described runs nothing.
TEST_F(PrepareCheckpoint, IsForADescribedDeviceAndReadByItsRules) {
  PrepareOptions options;
  options.device = *describe_device("cpu:neon");
  const auto report = prepare("out", options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->backend, "cpu_neon");
  const PreparedModel model = *PreparedModel::open(folder_ / "out");
  const PreparedLayerInfo& layer = model.manifest().layers.front();
  const auto readers = prepared_readers(layer, layer.problem, *options.device, {});
  ASSERT_TRUE(readers);
  EXPECT_EQ(readers->selection.chosen, "cpu_neon");
  const auto card = prepared_readers(layer, layer.problem, *describe_device("sm_90"), {});
  ASSERT_TRUE(card && card->error);
  EXPECT_EQ(card->needs, "device: needs a CPU, has CUDA device described sm_90 (H100)");
  const auto opened = model.layer(layer.layer, DType::bf16, 1, *describe_device("sm_90"), {});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::unsupported);
  EXPECT_NE(opened.error().what.find(card->needs), std::string::npos) << opened.error().what;
  const auto forced = prepared_readers(layer, layer.problem, *options.device, {"cuda_moe"});
  ASSERT_TRUE(forced && forced->error);
  EXPECT_NE(forced->needs.find("layout: needs experts prepared for cuda_moe"), std::string::npos)
      << forced->needs;
}

// Models of before hold every small file.
TEST_F(PrepareCheckpoint, AManifestOfBeforeWithTextsIsComparedWithTheSource) {
  folder_.write("source/README.md", "of the source");
  ASSERT_TRUE(prepare("out"));
  PreparedManifest manifest = *read_manifest(folder_ / "out");
  const auto sources = *source_files(source(), {"README.md"});
  manifest.source_hash = source_hash(sources);
  manifest.source.clear();
  for (const SourceFile& file : sources) {
    manifest.source.push_back(
        {.name = file.name, .bytes = file.bytes, .hash = file.hash, .of_header = file.weights});
    if (file.name != "README.md") continue;
    const auto behind = std::ranges::find(manifest.files, "config.json", &PreparedFile::name);
    manifest.files.insert(behind, {.name = file.name, .bytes = file.bytes, .hash = file.hash});
    folder_.write("out/README.md", "of the source");
  }
  folder_.write("out/fewbit_prepared.json", manifest_json(manifest).dump());
  const Checkpoint checkpoint = source();
  const auto pool = *make_thread_pool(1);
  const auto verified = verify_prepared(folder_ / "out", &checkpoint, nullptr, *pool);
  EXPECT_TRUE(verified) << verified.error().message();
}

// Edited with a hash that fits: the source tells.
TEST_F(PrepareCheckpoint, EveryFieldIsComparedWithTheSource) {
  ASSERT_TRUE(prepare("out"));
  const PreparedManifest good = *read_manifest(folder_ / "out");
  const auto pool = *make_thread_pool(1);
  const Checkpoint checkpoint = source();
  using Edit = void (*)(PreparedManifest&);
  const std::map<std::string, Edit> edits{
      {"layers[1].problem.router_weight_side: \"input\", the source gives \"output\"",
       [](PreparedManifest& m) {
         m.layers[1].problem.router_weight_side = RouterWeightSide::input;
       }},
      {"layers[0].problem.activation.kind: \"gelu\", the source gives \"silu\"",
       [](PreparedManifest& m) { m.layers[0].problem.activation.kind = Activation::gelu; }},
      {"layers[0].problem.activation.limit_bits: ",
       [](PreparedManifest& m) { m.layers[0].problem.activation.limit = 3.0F; }},
      {"layers[0].problem.top_k: 3, the source gives 2",
       [](PreparedManifest& m) { m.layers[0].problem.top_k = 3; }},
      {"layers[0].problem.biases: true, the source gives false",
       [](PreparedManifest& m) { m.layers[0].problem.biases = true; }},
      {"layers[0].problem.gate_up.producer: ",
       [](PreparedManifest& m) { m.layers[0].problem.gate_up.producer = Producer::awq; }},
      {"layers[0].problem.router.routing: ",
       [](PreparedManifest& m) { m.layers[0].problem.routing = Routing::llama4; }},
      {"layers[0].buffers[0].source: \"x\", the source gives ",
       [](PreparedManifest& m) { m.layers[0].plan.buffers[0].source = "x"; }},
      {"layer 2 of the source is not among the 1 prepared layers",
       [](PreparedManifest& m) { m.layers.pop_back(); }},
      {"source.files[0].bytes: 1, the source gives ",
       [](PreparedManifest& m) { m.source[0].bytes = 1; }},
      {"not the source", [](PreparedManifest& m) { m.source_hash[0] ^= 1; }},
  };
  for (const auto& [text, edit] : edits) {
    PreparedManifest bad = good;
    edit(bad);
    folder_.write("out/fewbit_prepared.json", manifest_json(bad).dump());
    // The folder's own config tells some of it.
    const bool in_config = text.starts_with("layers[0].problem.activation") ||
                           text.starts_with("layers[0].problem.top_k");
    const auto alone = verify_prepared(folder_ / "out", nullptr, nullptr, *pool);
    ASSERT_NE(alone.has_value(), in_config) << text;
    if (in_config) {
      EXPECT_EQ(alone.error().code, ErrorCode::inconsistent) << text;
    }
    const auto verified = verify_prepared(folder_ / "out", &checkpoint, nullptr, *pool);
    ASSERT_FALSE(verified) << text;
    EXPECT_EQ(verified.error().code, ErrorCode::inconsistent);
    EXPECT_NE(verified.error().message().find(text), std::string::npos)
        << verified.error().message();
  }
}

// What decides where bytes lie must fit the files already when it is opened.
TEST_F(PrepareCheckpoint, AManifestThatDoesNotFitItsFilesIsNotOpened) {
  ASSERT_TRUE(prepare("out"));
  const PreparedManifest good = *read_manifest(folder_ / "out");
  using Edit = void (*)(PreparedManifest&);
  for (const Edit edit :
       {Edit([](PreparedManifest& m) { m.layers[0].plan.buffers[0].shape[0] /= 2; }),
        Edit([](PreparedManifest& m) { m.layers[0].plan.buffers.pop_back(); }),
        Edit([](PreparedManifest& m) { m.layers[0].backend = "none"; }),
        Edit([](PreparedManifest& m) { m.layers[0].problem.where = "other"; }),
        Edit([](PreparedManifest& m) { m.layers[0].file = m.layers[1].file; })}) {
    PreparedManifest bad = good;
    edit(bad);
    folder_.write("out/fewbit_prepared.json", manifest_json(bad).dump());
    const auto model = PreparedModel::open(folder_ / "out");
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, ErrorCode::corrupt) << model.error().message();
  }
}

TEST_F(PrepareCheckpoint, AFailedVerificationLeavesNothing) {
  PrepareOptions options;
  options.verify = true;
  const auto good = prepare("out", options);
  ASSERT_TRUE(good) << good.error().message();
  ASSERT_TRUE(good->verified);
  EXPECT_EQ(good->verified->experts, 8);
  fs::remove_all(folder_ / "out");
  const fs::path layer = folder_ / "out.partial" / "prepared" / "layer-00002.safetensors";
  bool damaged = false;
  options.verify_progress = [&](std::uint64_t, std::uint64_t) {
    if (std::exchange(damaged, true)) return true;
    std::string bytes = file_content(layer);
    bytes.back() ^= 1;
    folder_.write("out.partial/prepared/layer-00002.safetensors", bytes);
    return true;
  };
  const auto failed = prepare("out", options);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message().find("layer-00002.safetensors: content hash is"),
            std::string::npos)
      << failed.error().message();
  for (const char* name : {"out", "out.partial", "out.partial.journal"}) {
    EXPECT_FALSE(fs::exists(folder_ / name)) << name;
  }
}

// The unfinished output stays, verified when the same call is made again.
TEST_F(PrepareCheckpoint, AVerificationThatIsStoppedGoesOn) {
  PrepareOptions options;
  options.verify = true;
  options.verify_progress = [](std::uint64_t, std::uint64_t) { return false; };
  const auto stopped = prepare("out", options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  options.verify_progress = nullptr;
  const auto resumed = prepare("out", options);
  ASSERT_TRUE(resumed) << resumed.error().message();
  EXPECT_EQ(resumed->resumed_experts, 8);
  EXPECT_EQ(resumed->verified->experts, 8);
}

TEST_F(PrepareCheckpoint, LayersOfASliceOpenAndTheModelDoesNot) {
  PrepareOptions options;
  options.split = {.tensor_ranks = 1, .expert_ranks = 2, .rank = 1};
  ASSERT_TRUE(prepare("slice", options));
  const auto model = PreparedModel::open(folder_ / "slice");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->layers(), (std::vector<int>{0, 2}));
  EXPECT_EQ(model->manifest().layers[0].first_expert, 2);
  const auto layer = model->layer(2, DType::bf16, 4, *detect_cpu(), {});
  ASSERT_TRUE(layer) << layer.error().message();
  EXPECT_EQ(layer->experts.problem().num_experts, 2);
  EXPECT_TRUE(layer->experts.problem().expert_map);
  EXPECT_EQ(layer->experts.info().owned_bytes, 0U);
  EXPECT_FALSE(model->layer(1, DType::bf16, 4, *detect_cpu(), {}));
  const auto whole = Model::load(folder_ / "slice", {}, *make_thread_pool(1));
  ASSERT_FALSE(whole);
  EXPECT_NE(whole.error().message().find("rank 1 of 2"), std::string::npos);
}

}  // namespace
}  // namespace fewbit
