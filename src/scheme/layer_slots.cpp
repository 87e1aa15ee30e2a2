// SPDX-License-Identifier: Apache-2.0
#include "scheme/layer_slots.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "core/text_search.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

// What exporters add or leave out as they like.
bool is_incidental(const Module& module) {
  const std::string_view last = split_dots(module.name).back();
  for (const std::string_view piece :
       {"scale", "zero_point", "amax", "rotary", "inv_freq", "mask", "lora", "g_idx", "observer",
        "rope_freqs", "quantizer", "downsample"}) {
    if (contains_text(last, piece) || (piece != "scale" && contains_text(module.name, piece)))
      return true;
  }
  return is_table(module.name) && !last.ends_with("tid2eid");
}

}  // namespace

bool is_main_stack(std::string_view path) {
  if (path == "layers" || path == "blk" || path == "h") return true;
  const std::vector<std::string_view> parts = split_dots(path);
  if (parts.size() < 2) return false;
  const std::string_view owner = parts[parts.size() - 2];
  if (parts.back() == "h" || parts.back() == "blocks") return owner == "transformer";
  constexpr std::string_view owners[] = {"model",   "language_model", "backbone", "transformer",
                                         "decoder", "gpt_neox",       "llm"};
  return parts.back() == "layers" &&
         std::find(std::begin(owners), std::end(owners), owner) != std::end(owners);
}

std::map<std::string, SlotStack> slots_of(const Identified& identified) {
  std::map<std::string, SlotStack> stacks;
  for (const Module& module : identified.modules) {
    if (module.layer < 0 || outside_language_model(module.name) || is_incidental(module)) continue;
    const std::string path = layer_path(module.name);
    const std::size_t dot = path.rfind('.');
    if (dot == std::string::npos || path.substr(dot + 1) != std::to_string(module.layer)) continue;
    const std::size_t at = module.name.rfind(path);
    const std::size_t end = at + path.size() + 1;
    if (at == std::string::npos || end >= module.name.size()) continue;
    Slots& slots = stacks[path.substr(0, dot)][module.layer];
    const std::string name = without_numbers(std::string_view(module.name).substr(end));
    if (has_weight(module)) slots.emplace(name, &module);
    if (!module.part("bias").empty() && has_weight(module)) slots.emplace(name + " bias", &module);
  }
  return stacks;
}

}  // namespace fewbit
