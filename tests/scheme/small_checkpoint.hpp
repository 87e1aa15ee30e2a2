// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a few small tensors, made by the test that reads them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/scratch_folder.hpp"
#include "core/float_convert.hpp"
#include "fewbit/checkpoint.hpp"

namespace fewbit {

class SmallCheckpoint {
 public:
  // Bytes are repeated to fill the tensor; none: zeros.
  SmallCheckpoint& add(const std::string& name, DType dtype, Shape shape,
                       std::vector<std::uint8_t> bytes = {0}) {
    tensors_[name] = {dtype, std::move(shape), std::move(bytes)};
    return *this;
  }
  SmallCheckpoint& add_f32(const std::string& name, Shape shape, const std::vector<float>& values) {
    std::vector<std::uint8_t> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return add(name, DType::f32, std::move(shape), std::move(bytes));
  }
  SmallCheckpoint& add_bf16(const std::string& name, Shape shape,
                            const std::vector<float>& values = {0.0F}) {
    std::vector<std::uint8_t> bytes;
    for (const float value : values) {
      const std::uint16_t bits = f32_to_bf16(value);
      bytes.push_back(static_cast<std::uint8_t>(bits & 0xFFU));
      bytes.push_back(static_cast<std::uint8_t>(bits >> 8U));
    }
    return add(name, DType::bf16, std::move(shape), std::move(bytes));
  }
  SmallCheckpoint& remove(const std::string& name) {
    EXPECT_EQ(tensors_.erase(name), 1U) << name;
    return *this;
  }
  SmallCheckpoint& file(const std::string& name, const std::string& content) {
    files_[name] = content;
    return *this;
  }

  // A ModelOpt NVFP4 matrix [n, k]: codes 0x21 (0.5, 1), scales 1, global 1/4.
  SmallCheckpoint& add_nvfp4(const std::string& module, std::int64_t n, std::int64_t k,
                             float global = 0.25F) {
    add(module + ".weight", DType::u8, {n, k / 2}, {0x21});
    add(module + ".weight_scale", DType::f8_e4m3, {n, k / 16}, {0x38});
    return add_f32(module + ".weight_scale_2", {}, {global});
  }

  static constexpr std::int64_t hidden = 32;
  static constexpr std::int64_t inner = 16;
  static constexpr int experts = 2;

  // A Qwen3-MoE of one layer whose experts are NVFP4, with both config places.
  static SmallCheckpoint modelopt() {
    SmallCheckpoint out = backbone();
    for (int e = 0; e < experts; ++e) {
      const std::string expert = "model.layers.0.mlp.experts." + std::to_string(e) + ".";
      out.add_nvfp4(expert + "gate_proj", inner, hidden);
      out.add_nvfp4(expert + "up_proj", inner, hidden);
      out.add_nvfp4(expert + "down_proj", hidden, inner);
    }
    out.file("config.json", config(R"("quantization_config": {"quant_method": "modelopt",
        "quant_algo": "W4A16_NVFP4", "ignore": ["lm_head", "model.layers.0.mlp.gate",
        "model.layers.0.self_attn*"]},)"));
    return out.file("hf_quant_config.json", R"({"producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "W4A16_NVFP4", "exclude_modules": ["lm_head",
        "model.layers.0.mlp.gate", "model.layers.0.self_attn*"]}})");
  }

  // The same model in bf16. Value i of a matrix is its own: a mixed-up slice can't go unseen.
  static SmallCheckpoint bf16() {
    SmallCheckpoint out = backbone();
    for (int e = 0; e < experts; ++e) {
      const std::string expert = "model.layers.0.mlp.experts." + std::to_string(e) + ".";
      out.add_bf16(expert + "gate_proj.weight", {inner, hidden}, ramp(0.011F * (float(e) + 1)));
      out.add_bf16(expert + "up_proj.weight", {inner, hidden}, ramp(-0.013F * (float(e) + 1)));
      out.add_bf16(expert + "down_proj.weight", {hidden, inner}, ramp(0.017F * (float(e) + 1)));
    }
    return out.file("config.json", config(""));
  }

  // config.json of that model; `extra` is inserted as its first members.
  static std::string config(const std::string& extra) {
    return "{" + extra + R"("architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
        "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 16, "vocab_size": 64, "max_position_embeddings": 128, "num_experts": 2,
        "num_experts_per_tok": 1, "norm_topk_prob": true, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "eos_token_id": 3, "torch_dtype": "bfloat16"})";
  }

  // Written on the first call; the folder lives as long as this object.
  const std::filesystem::path& write() {
    if (!path_.empty()) return path_;
    std::vector<TensorSpec> specs;
    for (const auto& [name, tensor] : tensors_) specs.push_back({name, tensor.dtype, tensor.shape});
    path_ = *folder_ / "model";
    Result<CheckpointWriter> writer = CheckpointWriter::create(path_, specs);
    EXPECT_TRUE(writer) << writer.error().message();
    for (const auto& [name, tensor] : tensors_) {
      std::vector<std::byte> bytes(*tensor_bytes(tensor.dtype, tensor.shape));
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(tensor.bytes[i % tensor.bytes.size()]);
      }
      EXPECT_TRUE(writer->write(name, bytes));
    }
    for (const auto& [name, content] : files_) EXPECT_TRUE(writer->write_file(name, content));
    const Result<void> finished = writer->finish();
    EXPECT_TRUE(finished) << finished.error().message();
    return path_;
  }

  Checkpoint open() {
    Result<Checkpoint> checkpoint = Checkpoint::open(write());
    EXPECT_TRUE(checkpoint) << checkpoint.error().message();
    return *std::move(checkpoint);
  }

  static std::vector<float> ramp(float step) {
    std::vector<float> values(512);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = step * (static_cast<float>(i * 37 % 101) - 50.0F);
    }
    return values;
  }

 private:
  struct Data {
    DType dtype;
    Shape shape;
    std::vector<std::uint8_t> bytes;
  };

  // All but the experts.
  static SmallCheckpoint backbone() {
    SmallCheckpoint out;
    out.add_bf16("model.embed_tokens.weight", {64, hidden});
    out.add_bf16("model.norm.weight", {hidden}, {1.0F});
    out.add_bf16("model.layers.0.input_layernorm.weight", {hidden}, {1.0F});
    out.add_bf16("model.layers.0.post_attention_layernorm.weight", {hidden}, {1.0F});
    out.add_bf16("model.layers.0.self_attn.q_norm.weight", {16}, {1.0F});
    out.add_bf16("model.layers.0.self_attn.k_norm.weight", {16}, {1.0F});
    out.add_bf16("model.layers.0.self_attn.q_proj.weight", {32, hidden}, ramp(0.01F));
    out.add_bf16("model.layers.0.self_attn.k_proj.weight", {16, hidden}, ramp(0.01F));
    out.add_bf16("model.layers.0.self_attn.v_proj.weight", {16, hidden}, ramp(0.01F));
    out.add_bf16("model.layers.0.self_attn.o_proj.weight", {hidden, 32}, ramp(0.01F));
    out.add_bf16("model.layers.0.mlp.gate.weight", {experts, hidden}, ramp(0.01F));
    return out;
  }

  std::map<std::string, Data> tensors_;
  std::map<std::string, std::string> files_;
  std::shared_ptr<ScratchFolder> folder_ = std::make_shared<ScratchFolder>();
  std::filesystem::path path_;
};

}  // namespace fewbit
