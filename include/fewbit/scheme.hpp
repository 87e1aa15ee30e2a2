// SPDX-License-Identifier: Apache-2.0
// Step 2, identify: what every tensor of a checkpoint is, from tensors first and config second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fewbit/checkpoint.hpp"

namespace fewbit {

enum class Producer {
  unquantized,
  modelopt,
  compressed_tensors,
  gptq,
  awq,
  auto_round,
  fp8,
  mxfp4,
  quark,
  bitsandbytes,
  hqq,
  torchao,
  exl2,
  exl3,
  gguf,
  nf3,
  ternary,
  unknown,  // quantized by something that fewbit does not know: refused, never taken for plain
  mlx,
};
const char* producer_name(Producer producer);

// Weights that share one scale; 0 = all of that axis: {0,0} tensor, {1,0} channel, {1,g} group of g
// along k, {128,128} block.
struct Granularity {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool operator==(const Granularity&) const = default;
};

enum class ScaleDirection { multiply, divide };

struct ScaleSpec {
  DType dtype = DType::f32;
  Granularity granularity;
  bool has_global = false;  // a second factor for the whole tensor
  ScaleDirection global_direction = ScaleDirection::multiply;
  bool operator==(const ScaleSpec&) const = default;
};

enum class ActOrder { none, static_groups, group };

// How codes lie in the file; the canonical form has one packing for all. Codes that do not fill a
// byte are packed low bits first.
enum class Packing {
  none,           // one value an element, [n, k]
  nibbles_k,      // two columns a byte, [n, k/2]
  nibbles_n,      // two rows a byte, [n/2, k]: ModelOpt INT4-AWQ
  words_row,      // i32 along k, [n, ceil(k*bits/32)]: compressed-tensors
  words_k,        // i32 along k, [k*bits/32, n], zeros as they are: GPTQ v2
  words_k_minus,  // the same, stored zeros are one too small: GPTQ v1
  words_n,        // i32 [k, n/8] in AWQ's order: AWQ GEMM
  words_gemv,     // i32 [n, k/8]: AWQ GEMV
  shorts_gemv,    // i16 [n/4, k]: AWQ GEMV-fast
  quarters_n,     // four rows a byte, [n/4, k], row q * n/4 + r at bit 2q of row r: BitNet
  flat_high,      // two codes a byte, high nibble first, row after row: bitsandbytes
  blocks,         // u8 [..., k/32, 16], two columns a byte: gpt-oss
  ggml,           // GGUF blocks
};

// How one matrix is stored: the producer's convention and what it means.
struct Scheme {
  Producer producer = Producer::unquantized;
  DType weight = DType::bf16;  // f4_e2m1 for NVFP4
  Packing packing = Packing::none;
  std::optional<ScaleSpec> scale;  // none: 16/32-bit weights
  std::int32_t zero_point = 0;     // subtracted from every code: 8 for symmetric unsigned 4-bit
  bool zero_points = false;        // stored a group instead
  ActOrder act_order = ActOrder::none;
  std::optional<DType> activation;  // what the producer asked for; empty: weight-only
  bool pre_quant_scale = false;     // activations are scaled by a vector [k] first
  std::optional<int> ggml_type;     // GGUF block type; everything is inside the blocks

  bool quantized() const { return producer != Producer::unquantized; }
  bool operator==(const Scheme&) const = default;
};
// "ModelOpt NVFP4 (e2m1, e4m3 scale a group of 16, f32 global)", "bf16".
std::string scheme_text(const Scheme& scheme);
// Canonical NVFP4 and plain schemes.
Scheme nvfp4_scheme(Producer producer = Producer::modelopt);
Scheme plain_scheme(DType dtype);

enum class Role {
  router,
  router_bias,  // e_score_correction_bias and router bias
  gate_proj,    // expert or dense MLP; `expert` tells which
  up_proj,
  down_proj,
  gate_up_proj,  // fused on disk
  shared_gate_proj,
  shared_up_proj,
  shared_down_proj,
  shared_gate_up_proj,  // fused on disk
  shared_expert_gate,
  latent_proj,  // into and out of a smaller space around the routed experts
  q_proj,
  k_proj,
  v_proj,
  o_proj,
  attention_other,
  norm,
  embedding,
  head,
  other,
};
const char* role_name(Role role);

// One matrix (or vector) of the model with all tensors that belong to it.
struct Module {
  std::string name;  // "model.layers.3.mlp.experts.7.up_proj"
  Role role = Role::other;
  int layer = -1;            // -1: not in a layer
  int expert = -1;           // -1: not one expert's; -2: all experts in one tensor
  std::int64_t n = 0;        // out_features (rows)
  std::int64_t k = 0;        // in_features; 0 for vectors
  std::int64_t experts = 0;  // matrices of one fused tensor: experts, in GGUF also heads
  // Fused experts stored as [experts, in, out], packed codes along `in`; n and k as everywhere.
  bool transposed = false;
  // gate_up_proj holds gate and up rows in turn, gate first (gpt-oss); else the gate rows stand
  // before the up rows.
  bool alternating = false;
  Scheme scheme;
  // Empty: readable. Otherwise why not: "GPTQ is not readable yet".
  std::string unreadable;
  // What the decision rests on: "tensors weight U8 [N,K/2] + weight_scale + weight_scale_2".
  std::string evidence;
  struct Part {
    std::string suffix;  // "weight", "weight_scale", "weight_scale_2", "input_scale"
    std::string tensor;  // full name in the checkpoint
  };
  std::vector<Part> parts;

  // Full tensor name of a part; empty when absent.
  std::string_view part(std::string_view suffix) const;
};

enum class Score { softmax, sigmoid, sqrt_softplus };
enum class Activation { silu, swigluoai, relu2, gelu, gelu_tanh };
const char* activation_name(Activation activation);
// Accepts the field's spellings ("silu", "swiglu", "swigluoai", "swigluoai_uninterleave",
// "relu2", "gelu", "gelu_pytorch_tanh"); error `unsupported` lists the known names.
Result<Activation> activation_from_name(std::string_view name);
// silu/swigluoai/gelu gate a second half; relu2 does not.
bool activation_gated(Activation activation);

// gate' = min(gate, limit); up' = clamp(up, -limit, limit); no limit when empty.
struct ActivationParams {
  Activation kind = Activation::silu;
  float alpha = 1.0F;  // swigluoai: sigmoid(alpha * gate)
  float beta = 0.0F;   // swigluoai: (up + beta)
  std::optional<float> limit = std::nullopt;
  bool operator==(const ActivationParams&) const = default;
};

struct RouterParams {
  Score score = Score::softmax;
  int top_k = 1;
  bool renormalize = true;
  int num_groups = 1;    // n_group
  int top_groups = 1;    // topk_group
  float scaling = 1.0F;  // routed_scaling_factor
};

// config.json, as far as a model is run from it. Sizes are checked against the tensors.
struct ModelConfig {
  std::string model_type;    // "qwen3_moe"
  std::string architecture;  // "Qwen3MoeForCausalLM"
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;      // dense MLP
  std::int64_t moe_intermediate_size = 0;  // experts
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  std::int64_t num_experts = 0;
  RouterParams router;
  ActivationParams activation;
  std::vector<bool> moe_layer;  // per layer: routed experts (else dense MLP)
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  DType dtype = DType::bf16;
  std::vector<std::int64_t> eos_token_ids;
};
// Errors: not_found (no config.json), corrupt, unsupported (a key with a meaning fewbit can't
// honour, named with its value), limit.
Result<ModelConfig> read_model_config(const Checkpoint& checkpoint);

struct Identified {
  Producer producer = Producer::unquantized;  // of the checkpoint as a whole
  std::string producer_evidence;
  std::vector<Module> modules;  // in order of name; every tensor belongs to exactly one
  std::vector<Finding> findings;

  const Module* find(std::string_view name) const;
  // The module of a layer with that role (and expert); nullptr when absent.
  const Module* find(int layer, Role role, int expert = -1) const;
};

// Never fails for an odd config: unknown means Producer::unknown and modules that say why they are
// unreadable. Errors only when a config file is corrupt.
Result<Identified> identify(const Checkpoint& checkpoint);

// Whether the parts fit together: missing, mis-shaped, unread tensors, wrong dtypes, NaN scales …
// Each depth reads what the one before does and more: scale tensors; all codes.
enum class Depth { headers, scales, weights };
std::vector<Finding> validate(const Checkpoint& checkpoint, const Identified& identified,
                              Depth depth = Depth::scales);

}  // namespace fewbit
