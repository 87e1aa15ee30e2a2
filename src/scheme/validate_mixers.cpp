// SPDX-License-Identifier: Apache-2.0
// Layers that are one mixer each, as Nemotron-H has them, and state-space models beside other parts
// of a layer: what one of its kind can't be without.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text_search.hpp"
#include "scheme/config_section.hpp"
#include "scheme/layer_slots.hpp"
#include "scheme/model_json.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

struct MixerKind {
  std::string_view name;
  std::string_view letter;  // in hybrid_override_pattern
  std::string_view word;    // in layers_block_type
  std::vector<std::string_view> parts;
  std::vector<std::string_view> marks;  // so many of these tell it
  std::ptrdiff_t least;
};

const std::vector<MixerKind>& mixer_kinds() {
  static const std::vector<MixerKind> kinds = {
      {"a state-space model",
       "M",
       "mamba",
       {"in_proj", "conv1d", "A_log", "D", "out_proj"},
       {"conv1d", "A_log", "D", "x_proj", "dt_proj", "dt_bias"},
       2},
      {"an attention",
       "*",
       "attention",
       {"q_proj", "k_proj", "v_proj", "o_proj"},
       {"q_proj", "k_proj", "v_proj", "o_proj"},
       1},
      {"experts", "E", "moe", {"experts"}, {"gate", "experts", "shared_experts"}, 1},
      {"an MLP", "-", "mlp", {"up_proj", "down_proj"}, {"up_proj", "down_proj"}, 1},
  };
  return kinds;
}

struct Mixer {
  std::string block;                    // "mixer"
  std::vector<std::string_view> parts;  // "q_proj", "experts"
  bool read = true;
};

// "mixer" of "mixer.q_proj", "mamba" of "mamba.in_proj" and "experts" of "mixer.experts.#.up_proj".
Mixer mixer_of(const Slots& slots) {
  Mixer mixer;
  for (const auto& [slot, module] : slots) {
    for (const std::string_view name : {"mixer", "mamba"}) {
      const std::string inner = fmt::format("{}.", name);
      const std::size_t at = slot.starts_with(inner) ? 0 : slot.find("." + inner);
      if (at == std::string::npos || slot.ends_with(" bias")) continue;
      const std::size_t begin = slot.find(inner, at) + inner.size();
      mixer.block = slot.substr(0, begin - 1);
      const std::string_view rest = std::string_view(slot).substr(begin);
      mixer.parts.push_back(rest.substr(0, rest.find('.')));
      mixer.read = mixer.read && module->unreadable.empty();
    }
  }
  return mixer;
}

bool has(const Mixer& mixer, std::string_view part) {
  return std::find(mixer.parts.begin(), mixer.parts.end(), part) != mixer.parts.end();
}

// The kinds that the config states, one a layer; empty when it doesn't.
class Pattern {
 public:
  Pattern(const Checkpoint& checkpoint, std::int64_t layers) {
    const auto file = read_model_json(checkpoint);
    if (!file || file->root == nullptr) return;
    const ConfigSection config(*file->root, file->name);
    if (const auto text = config.string({"hybrid_override_pattern"}); text && *text) {
      for (const char letter : **text) kinds_.push_back(of(std::string(1, letter)));
    } else if (const auto list = config.find({"layers_block_type"}); list) {
      const Json::Array* items = list.value->as_array();
      for (std::size_t i = 0; items != nullptr && i < items->size(); ++i) {
        const std::string* word = (*items)[i].as_string();
        kinds_.push_back(word != nullptr ? of(*word) : nullptr);
      }
    }
    if (static_cast<std::int64_t>(kinds_.size()) != layers) kinds_.clear();
  }

  const MixerKind* at(int layer) const {
    const auto number = static_cast<std::size_t>(layer);
    return number < kinds_.size() ? kinds_[number] : nullptr;
  }

 private:
  static const MixerKind* of(std::string_view text) {
    for (const MixerKind& kind : mixer_kinds()) {
      if (text == kind.letter || text == kind.word) return &kind;
    }
    return nullptr;
  }
  std::vector<const MixerKind*> kinds_;
};

// What the parts themselves say; nullptr where they are of no kind, or of two.
const MixerKind* kind_of(const Mixer& mixer) {
  const MixerKind* found = nullptr;
  for (const MixerKind& kind : mixer_kinds()) {
    const auto marks = std::count_if(kind.marks.begin(), kind.marks.end(),
                                     [&](std::string_view mark) { return has(mixer, mark); });
    if (marks < kind.least) continue;
    if (found != nullptr) return nullptr;
    found = &kind;
  }
  return found;
}

std::string missing_of(const Mixer& mixer, const MixerKind& kind) {
  const bool fused = has(mixer, "qkv_proj");
  std::string text;
  for (const std::string_view part : kind.parts) {
    const bool inside = fused && contains_any(part, {"q_proj", "k_proj", "v_proj"});
    if (inside || has(mixer, part)) continue;
    text += fmt::format("{}{}.{}", text.empty() ? "" : ", ", mixer.block, part);
  }
  return text;
}

bool is_normed(const Slots& slots) {
  return std::any_of(slots.begin(), slots.end(),
                     [](const auto& one) { return one.second->role == Role::norm; });
}

}  // namespace

std::set<std::string> validate_mixers(Validation& validation, const ModelHints& hints) {
  std::set<std::string> told;
  if (!hints.num_layers) return told;
  const Pattern pattern(validation.checkpoint, *hints.num_layers);
  for (const auto& [path, stack] : slots_of(validation.identified)) {
    // It is all that a layer has.
    const bool alone = std::any_of(stack.begin(), stack.end(), [](const auto& one) {
      return mixer_of(one.second).block == "mixer";
    });
    for (const auto& [number, slots] : stack) {
      Mixer mixer = mixer_of(slots);
      if (number >= *hints.num_layers || !mixer.read || !is_normed(slots)) continue;
      const MixerKind* stated = alone ? pattern.at(number) : nullptr;
      const MixerKind* kind = stated != nullptr ? stated : kind_of(mixer);
      if (kind == nullptr) continue;
      if (alone) mixer.block = "mixer";
      const std::string missing = missing_of(mixer, *kind);
      if (missing.empty()) continue;
      const std::string where = fmt::format("{}.{}", path, number);
      told.insert(where);
      validation.groups.add(
          Role::other, {Level::warning, "tensor-missing", where, "no " + missing,
                        fmt::format("one: the layer is {}{}", kind->name,
                                    stated != nullptr ? " by the config" : " by its other parts")});
    }
  }
  return told;
}

}  // namespace fewbit
