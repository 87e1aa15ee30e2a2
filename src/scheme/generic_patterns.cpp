// SPDX-License-Identifier: Apache-2.0
#include "scheme/generic_patterns.hpp"

#include <algorithm>
#include <string>

#include "scheme/fused_names.hpp"

namespace fewbit {
namespace {

// Of the default lists of ModelOpt, llm-compressor, AutoRound and Transformers, and of their
// recipes for models with experts, vision or audio.
constexpr std::string_view names[] = {
    "lm_head",
    "output_layer",
    "output",
    "proj_out",
    "classifier",
    "score",
    "embed_tokens",
    "embed_out",
    "wte",
    "word_embeddings",
    "embedding",
    "embeddings",
    "pos_embed",
    // Routers.
    "router",
    "gate",
    "mlp.gate",
    "moe.gate",
    "ffn.gate",
    "mlp.router",
    "block_sparse_moe.gate",
    "feed_forward.router",
    "shared_expert_gate",
    "mlp.shared_expert_gate",
    "gate.wg",
    "e_score_correction_bias",
    "expert_bias",
    "shared_experts",
    // Layers that are no plain matrices.
    "conv1d",
    "mixer.conv1d",
    "linear_attn.conv1d",
    "linear_attn",
    "linear_attn.in_proj_a",
    "linear_attn.in_proj_b",
    "self_attn.indexer",
    "indexer",
    "norm",
    "layernorm",
    "rotary_emb",
    "rotary",
    "k_norm",
    "q_norm",
    "mamba",
    "lora",
    "altup",
    "laurel",
    "per_layer",
    // Other modalities and token prediction.
    "visual",
    "vision",
    "vision_tower",
    "vision_model",
    "vision_encoder",
    "vision_embed_tokens",
    "img_processor",
    "image_embed",
    "multi_modal_projector",
    "mm_projector",
    "mlp1",
    "image",
    "img",
    "audio",
    "speech",
    "projector",
    "connector",
    "aligner",
    "multi_modal",
    "modality_projection",
    "talker",
    "code2wav",
    "code_predictor",
    "audio_tower",
    "audio_model",
    "audio_encoder",
    "speech_encoder",
    "embed_vision",
    "embed_audio",
    "merger",
    "patch_embed",
    "mtp",
    "eh_proj",
    "shared_head",
    "nextn",
    // Classes of modules.
    "nn.BatchNorm1d",
    "nn.BatchNorm2d",
    "nn.BatchNorm3d",
    "nn.LeakyReLU",
    "nn.Embedding",
    "default",
    "Llama4TextAttention",
};

void trim(std::string& text) {
  constexpr std::string_view ends = ".*^$()?";
  while (!text.empty() && ends.find(text.back()) != std::string_view::npos) text.pop_back();
  const std::size_t begin = text.find_first_not_of(ends);
  text.erase(0, begin == std::string::npos ? text.size() : begin);
}

}  // namespace

bool is_generic_name(std::string_view text) {
  const std::string_view inner = without_wrapper_prefix(text);
  return std::find(std::begin(names), std::end(names), inner) != std::end(names);
}

bool is_generic_pattern(std::string_view text) {
  if (text.starts_with("re:")) text.remove_prefix(3);
  std::string name(text);
  std::erase(name, '\\');
  trim(name);
  return is_generic_name(name);
}

}  // namespace fewbit
