// SPDX-License-Identifier: Apache-2.0
// A pre-norm decoder: x += attention(norm(x)), x += feed_forward(norm(x)) in each layer, then a
// last norm and the head.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/carver.hpp"
#include "fewbit/linear.hpp"
#include "fewbit/quantized.hpp"
#include "model/blocks.hpp"
#include "model/rms_norm.hpp"

namespace fewbit {

struct DecoderLayer {
  RmsNorm attention_norm;
  std::unique_ptr<AttentionBlock> attention;
  RmsNorm feed_forward_norm;
  std::unique_ptr<FeedForward> feed_forward;
};

struct DecoderParts {
  DType dtype = DType::bf16;  // of activations
  double rope_theta = 0;
  std::int64_t rope_dim = 0;
  QuantizedTensor embedding;  // [vocab, hidden]
  std::vector<DecoderLayer> layers;
  RmsNorm final_norm;
  LinearLayer head;  // f32 logits [vocab]
};

class Decoder {
 public:
  explicit Decoder(DecoderParts parts) : parts_(std::move(parts)) {}

  std::int64_t layers() const { return static_cast<std::int64_t>(parts_.layers.size()); }
  Result<std::uint64_t> cache_bytes(std::int64_t layer, std::int64_t capacity) const;
  // Enough for any call of at most max_tokens tokens.
  Result<std::uint64_t> workspace_bytes(std::int64_t max_tokens) const;

  struct Call {
    std::span<const std::int32_t> ids;  // inside the vocabulary
    std::int64_t start = 0;
    std::int64_t capacity = 0;
    std::span<const std::span<std::byte>> caches;  // one a layer
    std::span<std::byte> workspace;
    // The last tokens of the call get logits [count, vocab].
    std::span<float> logits;
    // Called with the hidden states [ids, hidden] of the activation dtype: the embedding, the
    // output of each layer but the last, and the last after the final norm. Or empty.
    std::function<void(std::int64_t index, std::span<const std::byte>)> trace;
    Executor* executor = nullptr;
  };
  Result<void> run(const Call& call) const;

  DType dtype() const { return parts_.dtype; }
  std::int64_t hidden_size() const { return parts_.embedding.k; }
  std::int64_t vocab_size() const { return parts_.embedding.n; }

 private:
  struct Buffers;
  Result<Buffers> carve(Carver& carver, std::int64_t tokens) const;
  Result<void> embed(std::span<const std::int32_t> ids, std::span<std::byte> x,
                     std::span<float> row) const;
  Result<void> run_layer(const Step& step, const DecoderLayer& layer, const Buffers& buffers,
                         std::span<std::byte> cache) const;
  Result<void> project_logits(const Call& call, const Buffers& buffers) const;

  DecoderParts parts_;
};

}  // namespace fewbit
