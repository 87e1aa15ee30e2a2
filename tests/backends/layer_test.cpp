// SPDX-License-Identifier: Apache-2.0
// What MoeLayer and LinearLayer check before a backend sees it: every message has both numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "backends/moe_case.hpp"
#include "core/aligned_buffer.hpp"
#include "fewbit/linear.hpp"

namespace fewbit {
namespace {

using test::LayerSpec;
using testing::HasSubstr;

// A valid call of three tokens that tests spoil one argument at a time.
class MoeLayerArguments : public testing::Test {
 protected:
  void SetUp() override {
    problem_ = test::problem_of(spec_, 2, 4);
    weights_ = test::random_weights(spec_);
    auto layer = test::prepare("reference", problem_, weights_, test::generic_cpu());
    ASSERT_TRUE(layer) << layer.error().message();
    layer_.emplace(*std::move(layer));
    workspace_ = *AlignedBuffer::allocate(*layer_->workspace_bytes(3) + 64);
    args_.tokens = 3;
    args_.hidden = {.dtype = DType::bf16, .shape = {3, 32}, .bytes = hidden_.span(), .device = {}};
    args_.topk_ids = ids_;
    args_.topk_weights = router_;
    args_.out = out_.span();
    args_.workspace = workspace_.span().first(*layer_->workspace_bytes(3));
  }

  // The message of a run after `spoil` changed the arguments.
  std::string after(const std::function<void(MoeArgs&)>& spoil) const {
    MoeArgs args = args_;
    spoil(args);
    const auto r = layer_->run(args, serial_executor());
    return r ? "no error" : r.error().message();
  }

  const LayerSpec spec_{.activation = {}};
  MoeProblem problem_;
  MoeWeights weights_;
  std::optional<MoeLayer> layer_;
  AlignedBuffer hidden_ = *AlignedBuffer::allocate(3 * 32 * 2);
  AlignedBuffer out_ = *AlignedBuffer::allocate(3 * 32 * 2 + 64);
  AlignedBuffer workspace_;
  std::vector<std::int32_t> ids_ = std::vector<std::int32_t>(6, 1);
  std::vector<float> router_ = std::vector<float>(6, 0.5F);
  MoeArgs args_;
};

// Backends of the CPU have no router; what doesn't fit is refused before it comes to that.
TEST_F(MoeLayerArguments, RoutersThatDoNotFitAreRefused) {
  const auto refusal = [&](const MoeRouter& router) {
    const Result<void> added = layer_->add_router(router);
    return added ? "no error" : added.error().message();
  };
  MoeRouter router{.params = {.top_k = 2}, .projection = {}, .bias = {}};
  EXPECT_THAT(refusal(router), HasSubstr("backend reference has no router"));
  router.projection.n = 3;
  router.projection.k = 32;
  EXPECT_THAT(refusal(router), HasSubstr("router projection is [3, 32], expected [4, 32]"));
  router.projection = {};
  router.bias = {0, 0, 0};
  EXPECT_THAT(refusal(router), HasSubstr("bias holds 3 elements, expected 4"));
  router.bias = {};
  router.params.top_k = 1;
  EXPECT_THAT(refusal(router), HasSubstr("router's top_k 1, expected the layer's 2"));
  const std::vector<float> logits(12);
  args_.out = out_.span().first(3 * 32 * 2);
  EXPECT_THAT(after([&](MoeArgs& a) { a.router_logits = logits; }), HasSubstr("router_logits"));
}

TEST_F(MoeLayerArguments, AreTakenWhenAllFit) {
  args_.out = out_.span().first(3 * 32 * 2);
  EXPECT_EQ(after([](MoeArgs&) {}), "no error");
}

TEST_F(MoeLayerArguments, TokensWithinThePlan) {
  EXPECT_EQ(after([](MoeArgs& a) { a.tokens = 5; }),
            "test layer: 5 tokens, expected 0 to max_tokens 4");
  EXPECT_THAT(after([](MoeArgs& a) { a.tokens = -1; }), HasSubstr("-1 tokens"));
  EXPECT_EQ(layer_->workspace_bytes(5).error().code, ErrorCode::invalid_argument);
}

TEST_F(MoeLayerArguments, HiddenStatesOfTheRightTypeShapeAndPlace) {
  EXPECT_EQ(after([](MoeArgs& a) { a.hidden.dtype = DType::f16; }),
            "test layer: hidden is f16 [3, 32], expected bf16 [3, 32]");
  EXPECT_EQ(after([](MoeArgs& a) {
              a.hidden.shape = {3, 16};
            }),
            "test layer: hidden is bf16 [3, 16], expected bf16 [3, 32]");
  EXPECT_EQ(after([](MoeArgs& a) { a.hidden.bytes = a.hidden.bytes.first(190); }),
            "test layer: hidden holds 190 bytes, expected 192 (bf16 [3, 32])");
  EXPECT_THAT(after([](MoeArgs& a) { a.hidden.device.kind = DeviceKind::cuda; }),
              HasSubstr("hidden is in CUDA memory"));
  EXPECT_THAT(after([this](MoeArgs& a) {
                a.hidden.bytes = workspace_.span().subspan(1, 192);
                a.out = out_.span().first(192);
              }),
              HasSubstr("hidden is 1 byte past a multiple of 2"));
}

TEST_F(MoeLayerArguments, OutputOfTheRightSizeAndApart) {
  EXPECT_EQ(after([this](MoeArgs& a) { a.out = out_.span().first(194); }),
            "test layer: out holds 194 bytes, expected 192 (bf16 [3, 32])");
  EXPECT_THAT(after([this](MoeArgs& a) { a.out = out_.span().subspan(1, 192); }),
              HasSubstr("out is 1 byte past a multiple of 2"));
  EXPECT_THAT(after([this](MoeArgs& a) { a.out = hidden_.span(); }),
              HasSubstr("input and output overlap"));
  EXPECT_THAT(after([this](MoeArgs& a) { a.out = workspace_.span().subspan(64, 192); }),
              HasSubstr("output and workspace overlap"));
  EXPECT_THAT(after([this](MoeArgs& a) {
                a.hidden.bytes = workspace_.span().first(192);
                a.out = out_.span().first(192);
              }),
              HasSubstr("input and workspace overlap"));
}

TEST_F(MoeLayerArguments, RoutesOfEveryToken) {
  args_.out = out_.span().first(192);
  EXPECT_EQ(after([this](MoeArgs& a) { a.topk_ids = std::span(ids_).first(5); }),
            "test layer: topk_ids hold 5 elements, expected 3 tokens * top_k 2");
  EXPECT_EQ(after([this](MoeArgs& a) { a.topk_weights = std::span(router_).first(4); }),
            "test layer: topk_weights hold 4 elements, expected 3 tokens * top_k 2");
}

TEST_F(MoeLayerArguments, ExpertMapExactlyWhenPreparedForOne) {
  args_.out = out_.span().first(192);
  EXPECT_EQ(after([this](MoeArgs& a) { a.expert_map = ids_; }),
            "test layer: expert_map of 6 entries, but the layer was prepared for none");
  problem_.expert_map = true;
  layer_.emplace(*test::prepare("reference", problem_, weights_, test::generic_cpu()));
  EXPECT_EQ(after([](MoeArgs&) {}),
            "test layer: expert_map is empty, but the layer was prepared for one");
  EXPECT_EQ(after([this](MoeArgs& a) { a.expert_map = ids_; }), "no error");
}

TEST_F(MoeLayerArguments, WorkspaceLargeEnoughAndAligned) {
  args_.out = out_.span().first(192);
  const std::uint64_t needed = *layer_->workspace_bytes(3);
  EXPECT_EQ(after([&](MoeArgs& a) { a.workspace = a.workspace.first(needed - 1); }),
            "test layer: workspace of " + std::to_string(needed - 1) +
                " bytes, expected at least " + std::to_string(needed));
  EXPECT_EQ(after([&](MoeArgs& a) { a.workspace = workspace_.span().subspan(8, needed); }),
            "test layer: workspace is 8 bytes past a multiple of 64");
}

TEST_F(MoeLayerArguments, AmaxTableThatHoldsTheLayer) {
  args_.out = out_.span().first(192);
  std::vector<float> values(2 * 5 * 2);
  const auto with = [&](AmaxTable table) { return after([&](MoeArgs& a) { a.amax = table; }); };
  EXPECT_EQ(with({.values = values, .layers = 2, .experts = 5, .layer = 1}), "no error");
  EXPECT_EQ(with({.values = values, .layers = 2, .experts = 5, .layer = 2}),
            "test layer: amax layer 2 of a table of 2 layers");
  EXPECT_EQ(with({.values = values, .layers = 5, .experts = 2, .layer = 1}),
            "test layer: amax table of 2 experts, expected at least 4");
  EXPECT_EQ(with({.values = values, .layers = 3, .experts = 5, .layer = 1}),
            "test layer: amax table holds 20 values, expected 3 layers * 5 experts * 2");
  EXPECT_THAT(with({.values = values, .layers = INT64_MAX, .experts = INT64_MAX, .layer = 1}),
              HasSubstr("amax table holds 20 values"));
}

TEST_F(MoeLayerArguments, NoTokensAreNoWork) {
  MoeArgs args;
  args.hidden = {.dtype = DType::bf16, .shape = {0, 32}, .bytes = {}, .device = {}};
  args.workspace = workspace_.span();
  EXPECT_TRUE(layer_->run(args, serial_executor()));
}

class MoeLayerWeights : public testing::Test {
 protected:
  std::string prepare_error() const {
    const auto layer = test::prepare("reference", problem_, weights_, test::generic_cpu());
    return layer ? "no error" : layer.error().message();
  }
  const LayerSpec spec_{.weight = DType::f4_e2m1, .activation = {}};
  MoeProblem problem_ = test::problem_of(spec_, 2, 4);
  MoeWeights weights_ = test::random_weights(spec_);
};

TEST_F(MoeLayerWeights, MustBeThoseOfTheProblem) {
  EXPECT_EQ(prepare_error(), "no error");
  weights_.experts.pop_back();
  EXPECT_EQ(prepare_error(), "test layer: weights of 3 experts, expected num_experts 4");
}

TEST_F(MoeLayerWeights, MustHaveTheShapesOfTheProblem) {
  weights_.experts[2].down = weights_.experts[2].up;
  EXPECT_EQ(prepare_error(), "test layer expert 2 down: matrix [48, 32], expected [32, 48]");
}

TEST_F(MoeLayerWeights, MustHaveTheSchemeOfTheProblem) {
  weights_.experts[1].up = test::random_weights({.activation = {}}).experts[1].up;
  EXPECT_EQ(prepare_error(),
            "test layer expert 1 up: scheme bf16, expected " + scheme_text(problem_.gate_up));
}

TEST_F(MoeLayerWeights, HaveAGateExactlyWhenTheActivationIsGated) {
  weights_.experts[0].gate.reset();
  EXPECT_EQ(prepare_error(), "test layer expert 0: no gate, but silu needs one");
  problem_.activation = {.kind = Activation::relu2};
  EXPECT_EQ(prepare_error(), "test layer expert 1: a gate, but relu2 has none");
}

TEST_F(MoeLayerWeights, HoldTheBytesThatTheirShapesNeed) {
  auto& scales = weights_.experts[3].gate->scales.view.bytes;
  scales = scales.first(scales.size() - 1);
  EXPECT_EQ(prepare_error(),
            "test layer expert 3 gate scales: 95 bytes, expected 96 (f8_e4m3 [48, 2])");
  auto& codes = weights_.experts[0].down.codes.view.bytes;
  codes = codes.first(10);
  EXPECT_EQ(prepare_error(),
            "test layer expert 0 down codes: 10 bytes, expected 768 (f4_e2m1 [32, 48])");
}

// A selection made for another layer or device does not carry over.
TEST_F(MoeLayerWeights, ASelectionIsCheckedAgain) {
  const DeviceInfo cpu = test::generic_cpu();
  auto selection = *select_backend(problem_, cpu, {.backend = "reference"});
  DeviceInfo gpu = cpu;
  gpu.kind = DeviceKind::cuda;
  const auto elsewhere = MoeLayer::prepare(selection, problem_, weights_, gpu, serial_executor());
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().code, ErrorCode::unsupported);
  selection.chosen = "none";
  EXPECT_THAT(
      MoeLayer::prepare(selection, problem_, weights_, cpu, serial_executor()).error().message(),
      HasSubstr("unknown backend \"none\""));
}

TEST(LinearLayer, ChecksItsArguments) {
  const QuantizedTensor weight = test::f32_matrix(2, 3, std::vector<float>(6));
  LinearProblem problem{.n = 2,
                        .k = 3,
                        .weight = plain_scheme(DType::f32),
                        .activation_dtype = DType::f32,
                        .output_dtype = DType::bf16,
                        .max_tokens = 2,
                        .where = "head"};
  const auto prepared = [&](const LinearProblem& p, const std::string& backend) {
    return LinearLayer::prepare(p, weight, test::generic_cpu(), {.backend = backend},
                                serial_executor());
  };
  const auto layer = prepared(problem, "reference");
  ASSERT_TRUE(layer) << layer.error().message();
  AlignedBuffer workspace = *AlignedBuffer::allocate(*layer->workspace_bytes(2));
  std::vector<float> x(6);
  std::vector<std::uint16_t> y(4);
  const auto message = [&](std::int64_t tokens, std::size_t y_size, Shape shape) {
    const TensorView view{.dtype = DType::f32,
                          .shape = std::move(shape),
                          .bytes = std::as_bytes(std::span(x)),
                          .device = {}};
    const auto r = layer->run(tokens, view, std::as_writable_bytes(std::span(y).first(y_size)),
                              workspace.span(), serial_executor());
    return r ? "no error" : r.error().message();
  };
  EXPECT_EQ(message(2, 4, {2, 3}), "no error");
  EXPECT_EQ(message(3, 4, {3, 3}), "head: 3 tokens, expected 0 to max_tokens 2");
  EXPECT_EQ(message(2, 4, {3, 2}), "head: x is f32 [3, 2], expected f32 [2, 3]");
  EXPECT_EQ(message(2, 3, {2, 3}), "head: y holds 6 bytes, expected 8 (bf16 [2, 2])");
  EXPECT_THAT(prepared(problem, "nothing").error().message(), HasSubstr("known: "));
  problem.k = 4;
  EXPECT_EQ(prepared(problem, "reference").error().message(),
            "head: matrix [2, 3], expected [2, 4]");
  problem.k = 0;
  EXPECT_THAT(prepared(problem, "reference").error().message(), HasSubstr("k is 0"));
}

}  // namespace
}  // namespace fewbit
