// SPDX-License-Identifier: Apache-2.0
// Token-prediction layers: what joins the last hidden state with the next token's embedding, and
// the attention beside the experts.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/text_search.hpp"
#include "scheme/layer_slots.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// One head: a layer behind the model's own, or all that stands under "mtp".
struct DraftHead {
  bool experts = false;
  bool attention = false;
  bool mlp = false;
  bool norm = false;
  bool read = true;
  bool joins = false;  // a matrix that is none of these
  std::vector<std::string_view> deepseek;
};

// DeepSeek's names, which GLM, Kimi and others have taken over: the norms of both and the matrix
// behind them.
constexpr std::string_view deepseek_names[] = {"eh_proj", "enorm", "hnorm"};

bool is_attention(const Module& module) {
  return module.role == Role::q_proj || module.role == Role::k_proj ||
         module.role == Role::v_proj || module.role == Role::o_proj ||
         module.role == Role::attention_other;
}

bool is_mlp(const Module& module) {
  return is_projection(module.role) && module.role != Role::head && !is_attention(module);
}

bool is_word_table(std::string_view name) {
  return contains_any(name, {"embed", "head", "norm", "rotary"});
}

void add(DraftHead& head, const Module& module) {
  head.read = head.read && module.unreadable.empty();
  if (!has_weight(module)) return;
  const std::vector<std::string_view> parts = split_dots(module.name);
  head.experts = head.experts || module.expert != -1;
  head.attention = head.attention || is_attention(module);
  head.mlp = head.mlp || is_mlp(module);
  head.norm = head.norm || module.role == Role::norm;
  head.joins =
      head.joins || (module.role == Role::other && module.k > 0 && !is_word_table(parts.back()));
  for (const std::string_view name : deepseek_names) {
    const bool named = std::find(parts.begin(), parts.end(), name) != parts.end();
    if (named) head.deepseek.push_back(name);
  }
}

std::string absent(const DraftHead& head) {
  std::string text;
  const auto lack = [&](std::string_view name) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  };
  for (const std::string_view name : deepseek_names) {
    const auto& found = head.deepseek;
    // DeepSeek-V4 has a matrix for each of the inputs.
    if (name == deepseek_names[0] && head.joins) continue;
    if (!found.empty() && std::find(found.begin(), found.end(), name) == found.end()) lack(name);
  }
  if (head.deepseek.empty() && !head.joins) lack("a matrix such as eh_proj or fc");
  if (!head.attention) lack("an attention");
  return text;
}

// Medusa's heads and the like are matrices alone.
bool is_decoder(const DraftHead& head) {
  return head.experts || (head.mlp && head.attention) || (head.mlp && !head.deepseek.empty());
}

// "mtp" or "model.mtp_layers", for a head beside the layers; empty: none.
std::string head_path(const Module& module) {
  const std::vector<std::string_view> parts = split_dots(module.name);
  std::string path;
  for (const std::string_view part : parts) {
    path += fmt::format("{}{}", path.empty() ? "" : ".", part);
    if (part == "mtp" || part == "mtp_layers") return path;
  }
  return "";
}

// "layers" of "model.layers.3.mlp.gate"; empty: not a language model's.
std::string stack_of(const Module& module) {
  const std::string path = layer_path(module.name);
  const std::string stack = path.substr(0, path.rfind('.'));
  return is_main_stack(stack) ? stack : "";
}

}  // namespace

void validate_draft_parts(Validation& validation, const ModelHints& hints) {
  if (!hints.num_layers) return;
  std::set<std::string> stacks;
  std::map<std::string, DraftHead> beside;
  std::map<std::string, DraftHead> behind;
  bool own = false;  // the model's layers are in the same checkpoint, with their norms
  for (const Module& module : validation.identified.modules) {
    if (contains_any(module.name, {"lora", "quantizer"})) continue;
    const std::string path = head_path(module);
    if (!path.empty()) {
      add(beside[path], module);
    } else if (!outside_language_model(module.name) && module.layer >= *hints.num_layers &&
               !stack_of(module).empty()) {
      add(behind[layer_path(module.name)], module);
    }
    if (path.empty() && module.layer >= 0) stacks.insert(stack_of(module));
    own = own || (module.layer >= 0 && module.layer < *hints.num_layers &&
                  module.role == Role::norm && path.empty());
  }
  if (!own) return;
  const auto report = [&](const std::string& path, const DraftHead& head) {
    const std::string missing = head.read && is_decoder(head) ? absent(head) : "";
    if (missing.empty()) return;
    validation.groups.add(
        Role::other,
        {Level::warning, "tensor-missing", path, "a token-prediction layer without " + missing,
         "what joins hidden states with embeddings, and all of a decoder layer"});
  };
  for (const auto& [path, head] : beside) report(path, head);
  // Layers of another model in the same checkpoint are no drafts.
  stacks.erase("");
  if (beside.empty() && stacks.size() == 1) {
    for (const auto& [path, head] : behind) report(path, head);
  }
}

}  // namespace fewbit
