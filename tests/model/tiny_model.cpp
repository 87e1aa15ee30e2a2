// SPDX-License-Identifier: Apache-2.0
#include "model/tiny_model.hpp"

#include <functional>
#include <random>

#include "core/convert.hpp"

namespace fewbit::test {
namespace {

Json config_of(const TinyConfig& c) {
  Json json;
  json.set("architectures", Json(Json::Array{Json("Qwen3MoeForCausalLM")}));
  json.set("model_type", Json("qwen3_moe"));
  json.set("hidden_act", Json("silu"));
  json.set("hidden_size", Json(c.hidden));
  json.set("intermediate_size", Json(c.dense_width));
  json.set("moe_intermediate_size", Json(c.expert_width));
  json.set("num_hidden_layers", Json(c.layers));
  json.set("num_attention_heads", Json(c.heads));
  json.set("num_key_value_heads", Json(c.kv_heads));
  json.set("head_dim", Json(c.head_dim));
  json.set("vocab_size", Json(c.vocab));
  json.set("max_position_embeddings", Json(c.max_positions));
  json.set("num_experts", Json(c.experts));
  json.set("num_experts_per_tok", Json(c.top_k));
  json.set("norm_topk_prob", Json(c.renormalize));
  json.set("rms_norm_eps", Json(c.epsilon));
  json.set("rope_theta", Json(c.theta));
  json.set("tie_word_embeddings", Json(c.tied));
  Json::Array dense;
  if (c.dense_layer >= 0) dense.push_back(Json(c.dense_layer));
  json.set("mlp_only_layers", Json(dense));
  return json;
}

}  // namespace

TinyModel::TinyModel(const TinyConfig& config, DType dtype, unsigned seed)
    : config_(config), dtype_(dtype), seed_(seed), json_(config_of(config)) {
  const TinyConfig& c = config_;
  add("model.embed_tokens.weight", {c.vocab, c.hidden}, 0.0F, 1.0F);
  add("model.norm.weight", {c.hidden}, 1.0F, 0.3F);
  if (!c.tied) add("lm_head.weight", {c.vocab, c.hidden}, 0.0F, 0.3F);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const std::string attention = layer + "self_attn.";
    add(layer + "input_layernorm.weight", {c.hidden}, 1.0F, 0.3F);
    add(layer + "post_attention_layernorm.weight", {c.hidden}, 1.0F, 0.3F);
    add(attention + "q_proj.weight", {c.heads * c.head_dim, c.hidden}, 0.0F, 0.3F);
    add(attention + "k_proj.weight", {c.kv_heads * c.head_dim, c.hidden}, 0.0F, 0.3F);
    add(attention + "v_proj.weight", {c.kv_heads * c.head_dim, c.hidden}, 0.0F, 0.3F);
    add(attention + "o_proj.weight", {c.hidden, c.heads * c.head_dim}, 0.0F, 0.3F);
    add(attention + "q_norm.weight", {c.head_dim}, 1.5F, 0.3F);
    add(attention + "k_norm.weight", {c.head_dim}, 1.5F, 0.3F);
    const auto add_mlp = [&](const std::string& name, std::int64_t width) {
      add(name + ".gate_proj.weight", {width, c.hidden}, 0.0F, 0.3F);
      add(name + ".up_proj.weight", {width, c.hidden}, 0.0F, 0.3F);
      add(name + ".down_proj.weight", {c.hidden, width}, 0.0F, 0.3F);
    };
    if (i == c.dense_layer) {
      add_mlp(layer + "mlp", c.dense_width);
      continue;
    }
    add(layer + "mlp.gate.weight", {c.experts, c.hidden}, 0.0F, 0.3F);
    for (std::int64_t e = 0; e < c.experts; ++e) {
      add_mlp(layer + "mlp.experts." + std::to_string(e), c.expert_width);
    }
  }
}

// Uniform around the center; each tensor has a stream of its own.
void TinyModel::add(const std::string& name, Shape shape, float center, float spread) {
  TinyTensor tensor{dtype_, std::move(shape), {}};
  tensor.values.resize(static_cast<std::size_t>(*shape_elements(tensor.shape)));
  std::mt19937 random(seed_ * 1000 + static_cast<unsigned>(tensors_.size()));
  for (float& value : tensor.values) {
    value = center + spread * (static_cast<float>(random() >> 8) * 0x1p-23F - 1.0F);
  }
  std::vector<std::byte> stored(*tensor_bytes(dtype_, tensor.shape));
  convert_from_f32(tensor.values, dtype_, stored).value();
  convert_to_f32(dtype_, stored, tensor.values).value();
  tensors_.emplace(name, std::move(tensor));
}

Result<void> TinyModel::write(const std::filesystem::path& directory) const {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors_) specs.push_back({name, tensor.dtype, tensor.shape});
  FEWBIT_TRY(CheckpointWriter writer, CheckpointWriter::create(directory, specs));
  for (const auto& [name, tensor] : tensors_) {
    FEWBIT_TRY(const std::uint64_t bytes, tensor_bytes(tensor.dtype, tensor.shape));
    std::vector<std::byte> stored(bytes);
    if (tensor.dtype != DType::i32) {
      FEWBIT_TRY(convert_from_f32(tensor.values, tensor.dtype, stored));
    }
    FEWBIT_TRY(writer.write(name, stored));
  }
  FEWBIT_TRY(writer.write_file("config.json", json_.dump()));
  return writer.finish();
}

const std::vector<float>& TinyModel::weight(const std::string& name) const {
  return tensors_.at(name).values;
}

}  // namespace fewbit::test
