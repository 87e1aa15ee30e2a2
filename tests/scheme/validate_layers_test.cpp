// SPDX-License-Identifier: Apache-2.0
// Layers compared with each other: what is told, where, with which numbers, and what is no fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoint/small_gguf.hpp"
#include "scheme/small_checkpoint.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// "error layers-missing layers: no tensors of layer 1 (3 layers, 0 to 2)" of each finding.
std::vector<std::string> texts(const Checkpoint& checkpoint) {
  const Result<Identified> identified = identify(checkpoint);
  EXPECT_TRUE(identified) << identified.error().message();
  Validation validation{checkpoint, *identified, Depth::headers, {}};
  validate_layers(validation);
  std::vector<std::string> out;
  for (const Finding& f : std::move(validation.groups).take()) {
    out.push_back(std::string(f.level == Level::error ? "error " : "warning ") + f.rule + " " +
                  f.where + ": " + f.found + " (" + f.expected + ")");
  }
  return out;
}

class Model {
 public:
  explicit Model(std::string path = "model.layers") : path_(std::move(path)) {}

  // Projections of the module ("mlp.experts.0", "mlp") of a layer.
  Model& add(int layer, const std::string& module, const std::vector<std::string>& projections) {
    for (const std::string& name : projections) {
      const bool down = name == "down_proj";
      add_matrix(layer, module + "." + name, down ? 32 : 16, down ? 16 : 32);
    }
    return *this;
  }
  Model& dense(int layer) { return add(layer, "mlp", {"gate_proj", "up_proj", "down_proj"}); }
  Model& router(int layer) { return add_matrix(layer, "mlp.gate", 2, 32); }
  // Two experts and a router.
  Model& moe(int layer,
             const std::vector<std::string>& projections = {"gate_proj", "up_proj", "down_proj"}) {
    add(layer, "mlp.experts.0", projections);
    add(layer, "mlp.experts.1", projections);
    return router(layer);
  }
  // A model of that many layers, by its config.
  Model& stated(int layers) {
    small_.file("config.json", R"({"model_type": "another", "num_hidden_layers": )" +
                                   std::to_string(layers) + "}");
    return *this;
  }
  Model& at(const std::string& path) {
    path_ = path;
    return *this;
  }
  std::vector<std::string> findings() { return texts(small_.open()); }

 private:
  Model& add_matrix(int layer, const std::string& module, std::int64_t n, std::int64_t k) {
    small_.add_bf16(path_ + "." + std::to_string(layer) + "." + module + ".weight", {n, k});
    return *this;
  }

  std::string path_;
  SmallCheckpoint small_;
};

TEST(ValidateLayers, DenseLayersBesideExpertsAreNoFault) {
  EXPECT_THAT(Model().dense(0).moe(1).moe(2).stated(3).findings(), IsEmpty());
  EXPECT_THAT(Model().dense(0).moe(1).moe(2).findings(), IsEmpty());
}

TEST(ValidateLayers, GapsAreErrorsOfAWholeModel) {
  EXPECT_THAT(Model().dense(0).dense(2).stated(3).findings(),
              ElementsAre("error layers-missing layers: no tensors of layer 1 (3 layers, 0 to "
                          "2)"));
  EXPECT_THAT(Model().dense(1).dense(3).dense(7).dense(8).stated(9).findings(),
              ElementsAre("error layers-missing layers: no tensors of layer 0, 2, 4 to 6 (9 "
                          "layers, 0 to 8)"));
}

// Nothing says where a part of a model begins; a gap inside it is still strange.
TEST(ValidateLayers, APartMayBeginAnywhere) {
  EXPECT_THAT(Model().dense(4).dense(5).findings(), IsEmpty());
  EXPECT_THAT(Model().dense(4).dense(6).findings(),
              ElementsAre("warning layers-missing layers: no tensors of layer 5 (3 layers, 4 "
                          "to 6)"));
}

// Layers beyond the stated ones predict tokens: they may be of another kind.
TEST(ValidateLayers, DraftLayersNeedNotBeLikeTheOthers) {
  const auto model = [](int draft) {
    return Model().dense(0).dense(1).add(draft, "mlp", {"up_proj"});
  };
  EXPECT_THAT(model(2).stated(2).findings(), IsEmpty());
  EXPECT_THAT(model(3).stated(2).findings(),
              ElementsAre("warning layers-missing layers.3: no layer 2 before it (2 layers by the "
                          "config, and what predicts tokens right behind them)"));
  EXPECT_THAT(model(3).stated(4).findings(),
              ElementsAre("error layers-missing layers: no tensors of layer 2 (4 layers, 0 to "
                          "3)",
                          "error projection-missing layer 3 MLP: up_proj without gate_proj, "
                          "down_proj (gate_proj, up_proj, down_proj, as all layers of its kind)"));
}

// Of a file of draft layers alone all are compared.
TEST(ValidateLayers, DraftLayersAloneAreCompared) {
  EXPECT_THAT(Model().dense(2).dense(4).stated(2).findings(),
              ElementsAre("error layers-missing layers: no tensors of layer 3 (3 layers, 2 to 4)"));
}

TEST(ValidateLayers, ExpertsLackWhatThoseOfAnotherLayerHave) {
  EXPECT_THAT(
      Model().moe(0).moe(1, {"up_proj", "down_proj"}).stated(2).findings(),
      ElementsAre("error experts-missing layer 1 experts: up_proj, down_proj without gate_proj "
                  "(gate_proj, up_proj, down_proj, as all layers of its kind)"));
  // No expert is without up.
  EXPECT_THAT(Model().moe(0, {"gate_proj", "down_proj"}).findings(),
              ElementsAre("error experts-missing layer 0 experts: gate_proj, down_proj without "
                          "up_proj (gate_proj, up_proj, down_proj)"));
  EXPECT_THAT(Model().moe(0, {"up_proj", "down_proj"}).stated(1).findings(), IsEmpty());
}

// In a whole model there is a down to every up; without a config they may be elsewhere.
TEST(ValidateLayers, OnlyAWholeModelNeedsEveryDown) {
  const auto model = [] { return Model().moe(0, {"gate_proj", "up_proj"}); };
  EXPECT_THAT(model().findings(), IsEmpty());
  EXPECT_THAT(model().stated(1).findings(),
              ElementsAre("error experts-missing layer 0 experts: gate_proj, up_proj without "
                          "down_proj (gate_proj, up_proj, down_proj)"));
  EXPECT_THAT(Model().moe(0).moe(1, {"down_proj"}).findings(), IsEmpty());
}

TEST(ValidateLayers, AFusedMatrixIsGateAndUp) {
  EXPECT_THAT(Model().moe(0).moe(1, {"gate_up_proj", "down_proj"}).stated(2).findings(), IsEmpty());
  Model shared;
  shared.add(0, "mlp.shared_expert", {"gate_proj", "up_proj", "down_proj"});
  shared.add(1, "mlp.shared_expert", {"gate_up_proj", "down_proj"});
  EXPECT_THAT(shared.stated(2).findings(), IsEmpty());
}

TEST(ValidateLayers, SharedExpertsAndDenseLayersHaveTheSameParts) {
  Model model;
  model.moe(0).moe(1).stated(2);
  model.add(0, "mlp.shared_expert", {"gate_proj", "up_proj", "down_proj"});
  model.add(1, "mlp.shared_expert", {"gate_proj", "down_proj"});
  EXPECT_THAT(model.findings(),
              ElementsAre("error projection-missing layer 1 shared expert: gate_proj, down_proj "
                          "without up_proj (gate_proj, up_proj, down_proj, as all layers of its "
                          "kind)"));
  // A dense MLP may have parts of other names: only what another one has is missed.
  EXPECT_THAT(Model().add(0, "mlp", {"gate_proj", "down_proj"}).stated(1).findings(), IsEmpty());
}

TEST(ValidateLayers, ARouterNeedsExperts) {
  EXPECT_THAT(
      Model().moe(0).router(1).stated(2).findings(),
      ElementsAre("error experts-missing layer 1: no experts beside model.layers.1.mlp.gate "
                  "(experts, as the other layers with a router have)"));
  // No layer has experts: they are in another file.
  EXPECT_THAT(Model().router(0).router(1).findings(), IsEmpty());
}

TEST(ValidateLayers, OfGgufTheBlockCountTells) {
  SmallGguf model;
  model.pair(gguf_pair("general.architecture", std::string("qwen3moe")));
  model.pair(gguf_pair("qwen3moe.block_count", std::uint32_t{2}));
  model.add("blk.1.ffn_gate_inp.weight", "F32", {2, 32});
  model.add("blk.1.ffn_up_exps.weight", "F32", {2, 16, 32});
  model.add("blk.1.ffn_down_exps.weight", "F32", {2, 32, 16});
  model.add("blk.2.ffn_up.weight", "F32", {16, 32});  // predicts tokens
  EXPECT_THAT(texts(model.open()),
              ElementsAre("error layers-missing blk: no tensors of layer 0 (2 layers, 0 to 1)"));
}

TEST(ValidateLayers, StacksAreApartAndTowersNoPartOfThem) {
  Model model("thinker.model.layers");
  model.moe(0).moe(1);
  model.at("talker.model.layers").dense(0).dense(2);
  model.at("visual.layers").add(0, "mlp", {"up_proj"}).add(5, "mlp", {"up_proj", "down_proj"});
  EXPECT_THAT(model.findings(),
              ElementsAre("warning layers-missing talker.model.layers: no tensors of layer 1 (3 "
                          "layers, 0 to 2)"));
}

}  // namespace
}  // namespace fewbit
