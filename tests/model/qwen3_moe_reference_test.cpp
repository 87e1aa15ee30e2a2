// SPDX-License-Identifier: Apache-2.0
// A trained Qwen3-MoE model held to what the reference library computes in f32.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "checkpoint/json.hpp"
#include "fewbit/fewbit.hpp"
#include "paths.hpp"

namespace fewbit {
namespace {

const std::filesystem::path folder = tests::vectors_dir() / "models" / "tiny-moe";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class T>
std::vector<T> values(const Checkpoint& checkpoint, const std::string& name) {
  const Result<Tensor> tensor = checkpoint.tensor(name);
  if (!tensor) return {};
  std::vector<T> out(tensor->view.bytes.size() / sizeof(T));
  std::memcpy(out.data(), tensor->view.bytes.data(), out.size() * sizeof(T));
  return out;
}

// ||a - b|| / ||b||
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(difference / size);
}

class Qwen3MoeReference : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder)) {
      GTEST_SKIP() << folder << ", beside the project, is missing";
    }
    auto opened = Checkpoint::open(folder / "reference.safetensors");
    ASSERT_TRUE(opened) << opened.error().message();
    reference_ = *std::move(opened);
    ids_ = values<std::int32_t>(*reference_, "input_ids");
    ASSERT_EQ(ids_.size(), 96U);
    auto json = Json::parse(read_file(folder / "reference.json"), "reference.json");
    ASSERT_TRUE(json) << json.error().message();
    json_ = *std::move(json);
  }

  static Model load(DType dtype) {
    auto pool = make_thread_pool();
    ModelOptions options;
    options.activation_dtype = dtype;
    auto model = Model::load(folder, options, *std::move(pool));
    EXPECT_TRUE(model) << model.error().message();
    return *std::move(model);
  }

  std::optional<Checkpoint> reference_;
  std::vector<std::int32_t> ids_;
  Json json_;
};

TEST_F(Qwen3MoeReference, HiddenStatesAndLogitsAgree) {
  const Model model = load(DType::f32);
  Sequence sequence = *model.new_sequence(96);
  const auto trace = model.forward_traced(sequence, ids_);
  ASSERT_TRUE(trace) << trace.error().message();
  ASSERT_EQ(trace->hidden_states.size(), 7U);
  for (std::size_t i = 0; i < trace->hidden_states.size(); ++i) {
    const auto expected = values<float>(*reference_, "hidden_states." + std::to_string(i));
    EXPECT_LE(relative_error(trace->hidden_states[i], expected), 1e-4) << "hidden state " << i;
  }
  EXPECT_LE(relative_error(trace->logits, values<float>(*reference_, "logits")), 1e-4);
}

TEST_F(Qwen3MoeReference, GreedyContinuationIsReproducedIdById) {
  const Model model = load(DType::f32);
  const auto tokenizer = Tokenizer::open(folder / "tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  const Json& greedy = *json_.find("greedy");
  const auto prompt = *tokenizer->encode(*greedy.find("prompt")->as_string());
  std::vector<std::int32_t> expected;
  for (const Json& id : *greedy.find("ids")->as_array()) {
    expected.push_back(static_cast<std::int32_t>(*id.as_int64()));
  }
  GenerateOptions options;
  options.max_new_tokens = static_cast<std::int64_t>(expected.size() - prompt.size());
  const auto generation = generate(model, prompt, options);
  ASSERT_TRUE(generation) << generation.error().message();
  EXPECT_EQ(generation->ids, expected);
  EXPECT_EQ(*tokenizer->decode(generation->ids), *greedy.find("text")->as_string());
}

// Mean loss of the first 95 tokens of the text, computed from the reference's own logits.
TEST_F(Qwen3MoeReference, LossOfAPrefixAgrees) {
  const auto logits = values<float>(*reference_, "logits");
  const std::size_t vocab = logits.size() / ids_.size();
  double expected = 0;
  for (std::size_t t = 0; t + 1 < ids_.size(); ++t) {
    double sum = 0;
    for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(double{logits[t * vocab + v]});
    expected += std::log(sum) - logits[t * vocab + static_cast<std::size_t>(ids_[t + 1])];
  }
  expected /= static_cast<double>(ids_.size() - 1);
  const Model model = load(DType::f32);
  const auto evaluation = evaluate(model, ids_, 95, {});
  ASSERT_TRUE(evaluation) << evaluation.error().message();
  EXPECT_EQ(evaluation->tokens_scored, 95);
  EXPECT_NEAR(evaluation->mean_nll, expected, 1e-5);
}

// Rounding activations to bf16 changes perplexity by less than 0.5 %. Single tokens move more than
// that, in both directions, so it takes some thousand of them.
TEST_F(Qwen3MoeReference, PerplexityInBf16IsThatOfF32) {
  const auto tokenizer = Tokenizer::open(folder / "tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  std::ifstream stream(folder / "val.txt", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  auto ids = *tokenizer->encode(text);
  ASSERT_GE(ids.size(), 4097U);
  ids.resize(4097);
  const auto exact = evaluate(load(DType::f32), ids, 512, {});
  const auto rounded = evaluate(load(DType::bf16), ids, 512, {});
  ASSERT_TRUE(exact) << exact.error().message();
  ASSERT_TRUE(rounded) << rounded.error().message();
  EXPECT_NEAR(rounded->perplexity, exact->perplexity, 0.005 * exact->perplexity);
}

}  // namespace
}  // namespace fewbit
