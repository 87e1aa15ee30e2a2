// SPDX-License-Identifier: Apache-2.0
#include "scheme/fused_names.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace fewbit {
namespace {

struct Fusion {
  std::string_view name;
  std::array<std::string_view, 3> parts;
};

constexpr Fusion fusions[] = {
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", {"gate_proj", "up_proj"}},
    {"fused_qkv_a_proj_with_mqa", {"q_a_proj", "kv_a_proj_with_mqa"}},
    {"fused_qkv_a_proj", {"q_a_proj", "kv_a_proj_with_mqa"}},
    {"fused_wqa_wkv", {"wq_a", "wkv"}},
    {"w13", {"w1", "w3"}},
};

// Of the MLP, in files of some families and in others or in engines.
constexpr std::pair<std::string_view, std::string_view> spellings[] = {
    {"w1", "gate_proj"},
    {"w3", "up_proj"},
    {"w2", "down_proj"},
    {"w13", "gate_up_proj"},
};

constexpr std::string_view in_proj = "in_proj_";

// "qkvgfab" -> qkv, g, f, a, b: q, k and v go together, every other letter is a projection.
std::vector<std::string> in_proj_parts(std::string_view letters) {
  std::vector<std::string> parts;
  while (!letters.empty()) {
    const std::size_t length = letters.starts_with("qkv") ? 3 : 1;
    parts.push_back(std::string(in_proj) + std::string(letters.substr(0, length)));
    letters.remove_prefix(length);
  }
  return parts.size() > 1 ? parts : std::vector<std::string>();
}

}  // namespace

std::vector<std::string> fused_parts(std::string_view component) {
  for (const Fusion& fusion : fusions) {
    if (fusion.name != component) continue;
    std::vector<std::string> parts;
    for (const std::string_view part : fusion.parts) {
      if (!part.empty()) parts.emplace_back(part);
    }
    return parts;
  }
  constexpr std::size_t most_letters = 12;
  if (component.starts_with(in_proj) && component.size() <= in_proj.size() + most_letters) {
    return in_proj_parts(component.substr(in_proj.size()));
  }
  return {};
}

std::vector<std::string> fused_names_of(std::string_view component) {
  std::vector<std::string> names;
  for (const Fusion& fusion : fusions) {
    if (!component.empty() &&
        std::find(fusion.parts.begin(), fusion.parts.end(), component) != fusion.parts.end()) {
      names.emplace_back(fusion.name);
    }
  }
  for (const std::string_view name : {"in_proj_qkvz", "in_proj_ba", "in_proj_qkvgfab"}) {
    const std::vector<std::string> parts = fused_parts(name);
    if (std::find(parts.begin(), parts.end(), component) != parts.end()) names.emplace_back(name);
  }
  return names;
}

std::string other_spelling(std::string_view module) {
  const std::string_view last = module.substr(module.rfind('.') + 1);
  for (const auto& [one, other] : spellings) {
    if (last == one) return with_last_component(module, other);
    if (last == other) return with_last_component(module, one);
  }
  return {};
}

std::string_view without_wrapper_prefix(std::string_view module) {
  for (bool stripped = true; stripped;) {
    stripped = false;
    for (const std::string_view prefix : {"model.", "language_model."}) {
      if (!module.starts_with(prefix)) continue;
      module.remove_prefix(prefix.size());
      stripped = true;
    }
  }
  return module;
}

std::vector<std::string> with_wrapper_prefixes(std::string_view module) {
  const std::string inner(without_wrapper_prefix(module));
  return {inner, "model." + inner, "language_model." + inner, "model.language_model." + inner,
          "language_model.model." + inner};
}

std::string_view without_wrapper_suffix(std::string_view module) {
  for (const std::string_view suffix : {".linear", ".base_layer"}) {
    if (module.ends_with(suffix)) return module.substr(0, module.size() - suffix.size());
  }
  return module;
}

std::string with_last_component(std::string_view module, std::string_view component) {
  const std::size_t dot = module.rfind('.');
  const std::string_view parent =
      dot == std::string_view::npos ? std::string_view() : module.substr(0, dot + 1);
  return std::string(parent) + std::string(component);
}

}  // namespace fewbit
