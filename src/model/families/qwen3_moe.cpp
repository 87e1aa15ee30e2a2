// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE: grouped-query attention with a norm of each query and key head, softmax top-k router,
// SwiGLU experts, dense MLP where the config says so.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "model/attention.hpp"
#include "model/dense_mlp.hpp"
#include "model/families/family.hpp"
#include "model/moe_block.hpp"

namespace fewbit {
namespace {

Result<std::unique_ptr<AttentionBlock>> load_attention(WeightReader& reader,
                                                       const std::string& name) {
  const ModelConfig& c = reader.config();
  const DType dtype = reader.activation_dtype();
  const std::int64_t q_width = c.num_heads * c.head_dim;
  const std::int64_t kv_width = c.num_kv_heads * c.head_dim;
  FEWBIT_TRY(LinearLayer q, reader.linear(name + ".q_proj", {q_width, c.hidden_size}, dtype));
  FEWBIT_TRY(LinearLayer k, reader.linear(name + ".k_proj", {kv_width, c.hidden_size}, dtype));
  FEWBIT_TRY(LinearLayer v, reader.linear(name + ".v_proj", {kv_width, c.hidden_size}, dtype));
  FEWBIT_TRY(LinearLayer o, reader.linear(name + ".o_proj", {c.hidden_size, q_width}, dtype));
  FEWBIT_TRY(RmsNorm q_norm, reader.norm(name + ".q_norm", c.head_dim));
  FEWBIT_TRY(RmsNorm k_norm, reader.norm(name + ".k_norm", c.head_dim));
  const AttentionShape shape{
      .heads = c.num_heads,
      .kv_heads = c.num_kv_heads,
      .head_dim = c.head_dim,
      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)))};
  GroupedQueryWeights weights{std::move(q), std::move(k),      std::move(v),
                              std::move(o), std::move(q_norm), std::move(k_norm)};
  return std::unique_ptr<AttentionBlock>(std::make_unique<GroupedQueryAttention>(
      shape, std::move(weights), dtype, attention_tile_for(reader.device().isa), reader.threads()));
}

Result<std::unique_ptr<FeedForward>> load_dense(WeightReader& reader, const std::string& name) {
  const ModelConfig& c = reader.config();
  const DType dtype = reader.activation_dtype();
  std::optional<LinearLayer> gate;
  if (activation_gated(c.activation.kind)) {
    FEWBIT_TRY(gate,
               reader.linear(name + ".gate_proj", {c.intermediate_size, c.hidden_size}, dtype));
  }
  FEWBIT_TRY(LinearLayer up,
             reader.linear(name + ".up_proj", {c.intermediate_size, c.hidden_size}, dtype));
  FEWBIT_TRY(LinearLayer down,
             reader.linear(name + ".down_proj", {c.hidden_size, c.intermediate_size}, dtype));
  return std::unique_ptr<FeedForward>(std::make_unique<DenseMlp>(
      DenseMlpWeights{std::move(gate), std::move(up), std::move(down)}, c.activation, dtype));
}

Result<std::unique_ptr<FeedForward>> load_moe(WeightReader& reader, int layer,
                                              const std::string& name) {
  const ModelConfig& c = reader.config();
  const WeightReader::MatrixShape gate{c.num_experts, c.hidden_size};
  FEWBIT_TRY(const QuantizedTensor projection, reader.matrix(name + ".gate", gate));
  FEWBIT_TRY(MoeLayer experts, reader.experts(layer, name + ".experts"));
  // Beside the experts where they are on a GPU.
  FEWBIT_TRY(const bool beside, reader.add_router(experts, projection));
  std::optional<LinearLayer> router;
  if (!beside) {
    // Near ties between experts are decided by the router's logits, so they stay f32.
    FEWBIT_TRY(router, reader.linear(name + ".gate", gate, DType::f32));
  }
  return std::unique_ptr<FeedForward>(std::make_unique<MoeBlock>(
      MoeBlockWeights{std::move(router), {}, std::move(experts)}, c.router));
}

Result<DecoderLayer> load_layer(WeightReader& reader, int index) {
  const ModelConfig& c = reader.config();
  const std::string name = fmt::format("model.layers.{}", index);
  DecoderLayer layer;
  FEWBIT_TRY(layer.attention_norm, reader.norm(name + ".input_layernorm", c.hidden_size));
  FEWBIT_TRY(layer.attention, load_attention(reader, name + ".self_attn"));
  FEWBIT_TRY(layer.feed_forward_norm,
             reader.norm(name + ".post_attention_layernorm", c.hidden_size));
  if (c.moe_layer[static_cast<std::size_t>(index)]) {
    FEWBIT_TRY(layer.feed_forward, load_moe(reader, index, name + ".mlp"));
  } else {
    FEWBIT_TRY(layer.feed_forward, load_dense(reader, name + ".mlp"));
  }
  return layer;
}

Result<DecoderParts> load(WeightReader& reader) {
  const ModelConfig& c = reader.config();
  const std::string embedding_name = "model.embed_tokens";
  const WeightReader::MatrixShape shape{c.vocab_size, c.hidden_size};
  FEWBIT_TRY(QuantizedTensor embedding, reader.matrix(embedding_name, shape));
  if (!c.tie_word_embeddings) FEWBIT_TRY(reader.prepared(embedding.codes.view.bytes.size()));
  std::vector<DecoderLayer> layers;
  for (int i = 0; i < static_cast<int>(c.num_layers); ++i) {
    FEWBIT_TRY(DecoderLayer layer, load_layer(reader, i));
    layers.push_back(std::move(layer));
  }
  FEWBIT_TRY(RmsNorm final_norm, reader.norm("model.norm", c.hidden_size));
  const std::uint64_t mapped = reader.report().mapped_bytes;
  FEWBIT_TRY(LinearLayer head,
             reader.linear(c.tie_word_embeddings ? embedding_name : "lm_head", shape, DType::f32));
  // A tied head that reads the same bytes in place was counted already.
  if (!c.tie_word_embeddings || reader.report().mapped_bytes == mapped) {
    reader.count_mapped(embedding);
  }
  return DecoderParts{.dtype = reader.activation_dtype(),
                      .rope_theta = c.rope_theta,
                      .rope_dim = c.head_dim,
                      .embedding = std::move(embedding),
                      .layers = std::move(layers),
                      .final_norm = std::move(final_norm),
                      .head = std::move(head)};
}

}  // namespace

const Family qwen3_moe_family = {"qwen3_moe", load};

}  // namespace fewbit
