// SPDX-License-Identifier: Apache-2.0
// Matrices of attentions against the heads that config.json states, where it states all of them and
// no other key explains another size.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text_search.hpp"
#include "scheme/layer_slots.hpp"
#include "scheme/model_json.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Attentions without anything of their own; rows of q are theirs alone, and heads share the width
// where the config has no head_dim.
constexpr std::string_view usual_types[] = {"llama",      "mistral", "qwen2",   "qwen2_moe",
                                            "granitemoe", "phimoe",  "mixtral", "olmoe"};
// Of these too the family is known, and its config states head_dim.
constexpr std::string_view known_types[] = {"qwen3",   "qwen3_moe",   "glm4_moe",    "minimax_m2",
                                            "gpt_oss", "deepseek_v2", "deepseek_v3", "kimi_k2",
                                            "dots1",   "ernie4_5_moe"};

template <std::size_t N>
bool one_of(std::string_view text, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

// Sizes are far below this, so that no product of two overflows.
constexpr std::int64_t most = std::int64_t{1} << 24;

std::int64_t size_of(const Json& section, std::string_view key) {
  const Json* value = section.find(key);
  const auto number = value != nullptr ? value->as_int64() : std::nullopt;
  return number && *number > 0 && *number < most ? *number : 0;
}

// The object that states the heads of the language model; nullptr where two do, or none.
const Json* heads_section(const Json& root) {
  const Json* found = nullptr;
  std::vector<const Json*> sections = {&root};
  for (const std::string_view name : {"text_config", "llm_config", "language_config"}) {
    if (const Json* section = root.find(name)) sections.push_back(section);
  }
  for (const Json* section : sections) {
    if (section->find("num_attention_heads") == nullptr) continue;
    if (found != nullptr) return nullptr;
    found = section;
  }
  return found;
}

bool is_of_another_part(std::string_view key) {
  return contains_any(key, {"vision", "audio", "quant", "compression"}) ||
         key.starts_with("linear_") || key.starts_with("mamba_") || key.starts_with("index_");
}

// Other numbers of heads, one for some layers or a list of them: those of sliding windows and full
// attentions, of values. What equals a known one explains nothing.
bool has_other_heads(const Json& section, const std::vector<std::int64_t>& known) {
  const Json::Object* members = section.as_object();
  if (members == nullptr) return false;
  return std::any_of(members->begin(), members->end(), [&](const Json::Member& member) {
    const auto& [key, value] = member;
    if (is_of_another_part(key)) return false;
    if (key == "block_configs") return true;
    if (value.is_object()) return has_other_heads(value, known);
    constexpr std::string_view widths[] = {"attention_hidden_size",
                                           "attn_hidden_size",
                                           "attention_dim",
                                           "attn_dim",
                                           "kv_channels",
                                           "d_kv",
                                           "kv_dim",
                                           "q_dim"};
    if (!contains_text(key, "head") && !one_of(key, widths)) return false;
    const auto number = value.as_int64();
    return value.is_array() ||
           (number && std::find(known.begin(), known.end(), *number) == known.end());
  });
}

struct Size {
  std::int64_t n = 0;
  std::int64_t k = 0;
};
using Expected = std::map<std::string, Size, std::less<>>;

// By the last part of the name; empty where the config does not state everything.
struct Attention {
  Expected sizes;
  std::string_view mark;  // only layers that have it are judged
  bool known = false;
  bool gated = false;  // q may have the rows of a gate
};

Attention latent_attention(const Json& c, std::int64_t hidden, std::int64_t heads) {
  const std::int64_t rank = size_of(c, "kv_lora_rank");
  const std::int64_t nope = size_of(c, "qk_nope_head_dim");
  const std::int64_t rope = size_of(c, "qk_rope_head_dim");
  const std::int64_t value = size_of(c, "v_head_dim");
  const std::int64_t q_rank = size_of(c, "q_lora_rank");
  Attention out;
  if (rank == 0 || nope == 0 || rope == 0 || value == 0) return out;
  out.mark = "kv_a_proj_with_mqa";
  out.sizes["kv_a_proj_with_mqa"] = {rank + rope, hidden};
  out.sizes["kv_b_proj"] = {heads * (nope + value), rank};
  out.sizes["o_proj"] = {hidden, heads * value};
  if (q_rank > 0) {
    out.sizes["q_a_proj"] = {q_rank, hidden};
    out.sizes["q_b_proj"] = {heads * (nope + rope), q_rank};
  } else {
    out.sizes["q_proj"] = {heads * (nope + rope), hidden};
  }
  return out;
}

Attention attention_of(const Json& c, const std::string& type) {
  const std::int64_t hidden = size_of(c, "hidden_size");
  const std::int64_t heads = size_of(c, "num_attention_heads");
  Attention out;
  if (hidden == 0 || heads == 0) return out;
  if (c.find("kv_lora_rank") != nullptr) {
    out = latent_attention(c, hidden, heads);
  } else {
    const std::int64_t kv_heads = size_of(c, "num_key_value_heads");
    std::int64_t width = size_of(c, "head_dim");
    if (width == 0 && one_of(type, usual_types) && hidden % heads == 0) width = hidden / heads;
    if (kv_heads == 0 || width == 0) return out;
    if (has_other_heads(c, {heads, kv_heads, width})) return out;
    out.mark = "q_proj";
    out.sizes["q_proj"] = {heads * width, hidden};
    out.sizes["k_proj"] = {kv_heads * width, hidden};
    out.sizes["v_proj"] = {kv_heads * width, hidden};
    out.sizes["o_proj"] = {hidden, heads * width};
  }
  out.known = one_of(type, usual_types) || one_of(type, known_types);
  out.gated = !out.known;
  return out;
}

bool is_attention_block(std::string_view slot) {
  constexpr std::string_view blocks[] = {"self_attn", "attn", "attention", "self_attention",
                                         "mixer"};
  const std::size_t dot = slot.rfind('.');
  return dot != std::string_view::npos && one_of(slot.substr(0, dot), blocks);
}

// A gate adds rows to the queries alone: the output still has the columns of all heads.
bool may_be_gated(const Attention& attention, const Slots& slots) {
  return attention.gated && std::any_of(slots.begin(), slots.end(), [&](const auto& one) {
           const auto size = attention.sizes.find("o_proj");
           return last_component(one.first) == "o_proj" && size != attention.sizes.end() &&
                  one.second->k == size->second.k;
         });
}

enum class Gate { none, possible };

bool fits(std::string_view name, const Size& size, const Module& module, Gate gate) {
  const bool doubled = gate == Gate::possible && name == "q_proj" && module.n == 2 * size.n;
  // The first layer of EAGLE's drafts takes embedding and hidden state side by side.
  const bool columns = module.k == size.k || (name != "o_proj" && module.k == 2 * size.k);
  return (module.n == size.n || doubled) && columns;
}

void check_layer(Validation& validation, const Attention& attention, const Slots& slots,
                 const std::string& source) {
  const auto marked = [&](const auto& one) { return last_component(one.first) == attention.mark; };
  if (!std::any_of(slots.begin(), slots.end(), marked)) return;
  const Gate gate = may_be_gated(attention, slots) ? Gate::possible : Gate::none;
  for (const auto& [slot, module] : slots) {
    if (!is_attention_block(slot) || module->k == 0 || !module->unreadable.empty()) continue;
    const auto expected = attention.sizes.find(last_component(slot));
    if (expected == attention.sizes.end()) continue;
    if (fits(expected->first, expected->second, *module, gate)) continue;
    validation.add(
        *module, attention.known ? Level::error : Level::warning, "config-size", module->name,
        fmt::format("[{}, {}]", module->n, module->k),
        fmt::format("[{}, {}] by the heads of {}", expected->second.n, expected->second.k, source));
  }
}

}  // namespace

void validate_attention_sizes(Validation& validation) {
  if (validation.checkpoint.gguf_metadata() != nullptr) return;
  const auto file = read_model_json(validation.checkpoint);
  // Of a family that is run all shapes are known.
  if (!file || file->root == nullptr || read_model_config(validation.checkpoint)) return;
  const Json* section = heads_section(*file->root);
  if (section == nullptr) return;
  const ModelHints hints = read_model_hints(*file->root);
  const std::string type = section->string_at("model_type").empty()
                               ? hints.model_type
                               : section->string_at("model_type");
  const Attention attention = attention_of(*section, type);
  const std::map<std::string, SlotStack> stacks = slots_of(validation.identified);
  const auto is_main = [](const auto& one) { return is_main_stack(one.first); };
  // Of two models in one checkpoint it is not known which the config speaks of.
  if (std::count_if(stacks.begin(), stacks.end(), is_main) != 1) return;
  const SlotStack& stack = std::find_if(stacks.begin(), stacks.end(), is_main)->second;
  for (const auto& [number, slots] : stack) {
    if (number < hints.num_layers.value_or(0)) {
      check_layer(validation, attention, slots, file->name);
    }
  }
}

}  // namespace fewbit
