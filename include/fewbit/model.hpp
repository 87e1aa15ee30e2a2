// SPDX-License-Identifier: Apache-2.0
// A whole MoE language model: load, evaluate, generate.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fewbit/checkpoint.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/moe.hpp"
#include "fewbit/quantize.hpp"
#include "fewbit/scheme.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {

// Byte-level BPE of a tokenizer.json.
class Tokenizer {
 public:
  // Errors: not_found, corrupt, unsupported (a component fewbit doesn't implement, by name).
  static Result<Tokenizer> open(const std::filesystem::path& tokenizer_json);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Errors: invalid_argument (not UTF-8: the position of the first wrong byte), limit.
  Result<std::vector<std::int32_t>> encode(std::string_view text) const;
  // Bytes of the ids, special tokens skipped or kept. Error invalid_argument: an id outside the
  // vocabulary. The bytes may end inside a UTF-8 sequence.
  Result<std::string> decode(std::span<const std::int32_t> ids, bool keep_special = false) const;
  std::int64_t vocab_size() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct SamplingParams {
  float temperature = 0.0F;  // 0: greedy
  int top_k = 0;             // 0: off
  float top_p = 1.0F;
  std::uint64_t seed = 0;
};

// Draws the next token from logits [vocab]. Deterministic for a seed, on every machine.
class Sampler {
 public:
  // Error invalid_argument: temperature < 0 or not finite, top_p outside (0, 1], top_k < 0.
  static Result<Sampler> create(const SamplingParams& params);
  // Error invalid_argument: empty or NaN logits.
  Result<std::int32_t> sample(std::span<const float> logits);

 private:
  explicit Sampler(const SamplingParams& params);
  SamplingParams params_;
  std::uint64_t state_;
};

struct ModelOptions {
  DType activation_dtype = DType::bf16;  // or f32, for exact comparison
  std::int64_t max_tokens = 512;         // most tokens of one forward call
  std::string backend;                   // forced backend of the experts
  std::string device = "cpu";            // of the experts, as describe_device names it; on a
                                         // GPU also of the routers and of the quantized dense
                                         // layers that it can run
  ProgressFn progress;                   // bytes prepared / total
};

// What a loaded model holds and chose.
struct ModelReport {
  std::vector<Selection> moe_selections;  // one a MoE layer
  MoeProblem moe_problem;                 // of the first MoE layer
  std::int64_t dense_on_gpu = 0;          // dense layers that run where the experts do
  std::int64_t dense_on_cpu = 0;
  std::uint64_t checkpoint_bytes = 0;
  std::uint64_t owned_bytes = 0;   // prepared weights
  std::uint64_t mapped_bytes = 0;  // read in place
  double load_seconds = 0;
  // What `fewbit check` warns of, and errors that did not keep the model from being read: they
  // stand in every answer. Of a prepared model none: `prepare` told those of its source.
  std::vector<Finding> source_warnings;
};

// Keys and values of one sequence.
class Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();
  std::int64_t length() const;
  std::int64_t capacity() const;
  void clear();
  struct State;
  State& state() { return *state_; }

 private:
  friend class Model;
  explicit Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Model {
 public:
  // Errors: unsupported (family, or a module that isn't readable: names it), not_found (a missing
  // tensor), corrupt (wrong shape or dtype, both numbers), and all of selection and preparation.
  static Result<Model> load(const std::filesystem::path& checkpoint, const ModelOptions& options,
                            std::shared_ptr<Executor> executor);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelConfig& config() const;
  const ModelReport& report() const;
  // What it was loaded with; its work around the model (scoring) runs there too.
  Executor& executor() const;

  // capacity: most positions; at most config().max_positions. Error invalid_argument otherwise.
  Result<Sequence> new_sequence(std::int64_t capacity) const;

  // Appends ids to the sequence. `last_only`: logits [1, vocab] of the last token, else
  // [ids.size(), vocab]. Calls longer than max_tokens are split.
  // Errors: invalid_argument (id outside the vocabulary, beyond the capacity: both numbers).
  enum class Logits { last_only, all };
  Result<std::vector<float>> forward(Sequence& sequence, std::span<const std::int32_t> ids,
                                     Logits logits) const;
  // As forward, also hidden states [layers + 1][ids, hidden] as f32: the embedding, the output of
  // each layer but the last, and the last after the final norm.
  struct Trace {
    std::vector<float> logits;
    std::vector<std::vector<float>> hidden_states;
  };
  Result<Trace> forward_traced(Sequence& sequence, std::span<const std::int32_t> ids) const;

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  template <class CallFn>
  Result<void> run(Sequence& sequence, std::span<const std::int32_t> ids, CallFn&& call) const;
  std::unique_ptr<State> state_;
};

// Perplexity as language models are scored: the text encoded whole, windows of `window` input
// tokens, position i of a window scores token i + 1; a last short window is dropped, as is a window
// without a following token.
struct Evaluation {
  double mean_nll = 0;
  double perplexity = 0;
  std::int64_t tokens_scored = 0;
  std::int64_t windows = 0;
};
// progress: tokens done, total. Errors: invalid_argument (text shorter than a window + 1 tokens).
Result<Evaluation> evaluate(const Model& model, std::span<const std::int32_t> ids,
                            std::int64_t window, const ProgressFn& progress);

struct GenerateOptions {
  SamplingParams sampling;
  std::int64_t max_new_tokens = 64;
  // Called for each new id; return false to stop.
  std::function<bool(std::int32_t)> on_token;
};
struct Generation {
  std::vector<std::int32_t> ids;  // prompt and continuation
  std::int64_t prompt_tokens = 0;
  bool stopped_by_eos = false;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};
// Errors: invalid_argument (empty prompt; prompt longer than the context: both numbers).
Result<Generation> generate(const Model& model, std::span<const std::int32_t> prompt,
                            const GenerateOptions& options);

}  // namespace fewbit
