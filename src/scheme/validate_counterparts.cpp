// SPDX-License-Identifier: Apache-2.0
// Projections that every layer of a whole model lacks, so that comparing layers shows nothing.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text_search.hpp"
#include "scheme/config_section.hpp"
#include "scheme/layer_slots.hpp"
#include "scheme/model_json.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// What a projection is in an attention or an MLP of known structure, as bits.
enum Part : unsigned { q = 1, k = 2, v = 4, o = 8, gate = 16, up = 32, down = 64 };
// Of latent attention.
enum LatentPart : unsigned { q_a = 128, q_b = 256, kv_a = 512, kv_b = 1024 };

constexpr unsigned qkv = q | k | v;
constexpr unsigned gate_up = gate | up;
constexpr unsigned latent = q_a | q_b | kv_a | kv_b;
constexpr std::pair<std::string_view, unsigned> part_names[] = {
    {"q_proj", q},
    {"k_proj", k},
    {"v_proj", v},
    {"o_proj", o},
    {"wq", q},
    {"wk", k},
    {"wv", v},
    {"wo", o},
    {"attn_q", q},
    {"attn_k", k},
    {"attn_v", v},
    {"attn_output", o},
    {"qkv_proj", qkv},
    {"attn_qkv", qkv},
    {"out_proj", o},
    {"gate_up_proj", gate_up},
    {"gate_proj", gate},
    {"up_proj", up},
    {"down_proj", down},
    {"ffn_gate", gate},
    {"ffn_up", up},
    {"ffn_down", down},
    {"q_a_proj", q_a},
    {"q_b_proj", q_b},
    {"kv_a_proj_with_mqa", kv_a},
    {"kv_b_proj", kv_b},
};

unsigned part_of(std::string_view name) {
  const auto found = std::find_if(std::begin(part_names), std::end(part_names),
                                  [&](const auto& one) { return one.first == name; });
  return found != std::end(part_names) ? found->second : 0;
}

std::string text_of(unsigned parts) {
  constexpr std::string_view names[] = {"q",    "k",   "v",   "o",    "gate", "up",
                                        "down", "q_a", "q_b", "kv_a", "kv_b"};
  std::string text;
  for (std::size_t i = 0; i < std::size(names); ++i) {
    if ((parts >> i & 1U) != 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", names[i]);
  }
  return text;
}

// The attention or MLP of all layers of a stack.
struct Block {
  unsigned parts = 0;
  bool known = true;  // no matrix whose part is not known
};

// "self_attn" of "self_attn.q_proj"; GGUF's "attn" of "attn_q". Empty: no attention and no MLP.
std::string block_of(const std::string& slot) {
  const std::size_t dot = slot.rfind('.');
  if (dot != std::string::npos) {
    const bool shared = contains_text(slot, "shared_expert");
    const bool experts = (contains_text(slot, "expert") && !shared) || contains_text(slot, "#");
    return experts ? "" : slot.substr(0, dot);
  }
  for (const std::string_view prefix : {"attn_", "ffn_"}) {
    if (slot.starts_with(prefix)) return std::string(prefix.substr(0, prefix.size() - 1));
  }
  return "";
}

// Of routers, routed experts, and shared experts in GGUF, which have rules of their own.
bool is_of_experts(const std::string& slot, const Module& module) {
  return module.expert != -1 || module.role == Role::router ||
         module.role == Role::shared_expert_gate ||
         contains_any(slot, {"_exps", "shexp", "chexps", "gate_inp"});
}

std::map<std::string, Block> blocks_of(const SlotStack& stack) {
  std::map<std::string, Block> blocks;
  for (const auto& [number, slots] : stack) {
    for (const auto& [slot, module] : slots) {
      const std::string name = block_of(slot);
      const bool vector = module->k == 0 && module->unreadable.empty();
      if (name.empty() || vector || slot.ends_with(" bias") || is_of_experts(slot, *module)) {
        continue;
      }
      Block& block = blocks[name];
      const unsigned part = part_of(slot.substr(slot.find_last_of('.') + 1));
      block.known = block.known && part != 0;
      block.parts |= part;
    }
  }
  return blocks;
}

// What the parts that are there are of no use without. Queries alone take keys and values from
// elsewhere; an MLP need not have a gate, an attention may.
unsigned missing_of(unsigned parts, bool values_are_keys) {
  unsigned wanted = 0;
  if ((parts & latent) != 0) {
    wanted = kv_a | kv_b | o | ((parts & (q_a | q_b)) != 0 ? q_a | q_b : unsigned{q});
  } else if ((parts & (qkv | o)) == 0) {
    wanted = up | down;
  } else if ((parts & qkv) != 0 && (parts & qkv) != q) {
    wanted = q | k | o | (values_are_keys ? 0U : v);
  }
  return wanted & ~parts;
}

bool values_are_keys(const Checkpoint& checkpoint) {
  const auto file = read_model_json(checkpoint);
  if (!file || file->root == nullptr) return false;
  const ConfigSection config(*file->root, file->name);
  const auto said = config.boolean({"attention_k_eq_v"});
  return said && *said == true;
}

// All layers are there, with norms, and nothing else than a language model's.
bool is_whole(const std::string& path, const SlotStack& stack, const ModelHints& hints) {
  const auto layers = static_cast<std::int64_t>(stack.size() + hints.empty_layers.size());
  if (!is_main_stack(path) || stack.empty() || layers < *hints.num_layers) return false;
  return std::all_of(stack.begin(), stack.end(), [](const auto& layer) {
    bool normed = false;
    for (const auto& [slot, module] : layer.second) {
      if (contains_any(slot, {"eh_proj", "enorm", "nextn"})) return false;
      normed = normed || module->role == Role::norm;
    }
    return normed;
  });
}

}  // namespace

void validate_counterparts(Validation& validation, const ModelHints& hints) {
  const std::vector<Module>& modules = validation.identified.modules;
  // Parts of modules that no reader took may have any names.
  const bool read = std::all_of(modules.begin(), modules.end(),
                                [](const Module& module) { return module.unreadable.empty(); });
  if (!hints.num_layers || !read) return;
  const bool shared = values_are_keys(validation.checkpoint);
  for (auto& [path, stack] : slots_of(validation.identified)) {
    std::erase_if(stack, [&](const auto& one) { return one.first >= *hints.num_layers; });
    if (!is_whole(path, stack, hints)) continue;
    for (const auto& [name, block] : blocks_of(stack)) {
      const unsigned missing = missing_of(block.parts, shared);
      if (!block.known || missing == 0) continue;
      validation.groups.add(Role::other,
                            {Level::warning, "tensor-missing", fmt::format("{}.*.{}", path, name),
                             fmt::format("{} without {} in all {} layers", text_of(block.parts),
                                         text_of(missing), stack.size()),
                             text_of(block.parts | missing) + ", as any model of such layers has"});
    }
  }
}

}  // namespace fewbit
