// SPDX-License-Identifier: Apache-2.0
// The modules of a layer, compared with those of the other layers of its kind.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "scheme/layer_kinds.hpp"
#include "scheme/layer_slots.hpp"
#include "scheme/model_hints.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// So many layers alike tell what one more of them has.
constexpr std::size_t enough = 3;

bool is_mlp(Role role) {
  switch (role) {
    case Role::gate_proj:
    case Role::up_proj:
    case Role::down_proj:
    case Role::gate_up_proj:
      return true;
    default:
      return false;
  }
}

// Attention, state space, convolution: what mixes the tokens, by any name.
bool is_mixer(const std::string& slot, const Module& module) {
  const bool other =
      module.role == Role::other && slot.find('.') != std::string::npos &&
      slot.find("mlp") == std::string::npos && slot.find("ff") == std::string::npos &&
      slot.find("feed") == std::string::npos && slot.find("expert") == std::string::npos &&
      slot.find("moe") == std::string::npos;
  return module.role == Role::q_proj || module.role == Role::k_proj ||
         module.role == Role::v_proj || module.role == Role::o_proj ||
         module.role == Role::attention_other || other;
}

// Layers of one kind that have the same names.
struct Alike {
  const Slots* slots = nullptr;
  std::size_t count = 0;
};
using Names = std::vector<std::string>;

bool is_bias(const std::string& slot) { return slot.ends_with(" bias"); }

// Exporters give quantized matrices a bias of zeros, plain ones none.
bool stored_alike(const Slots& slots, const std::string& matrix, const Module& module) {
  const auto found = slots.find(matrix);
  return found == slots.end() || found->second->scheme.quantized() == module.scheme.quantized();
}

// What `slots` lacks of `other`; empty when it has something that `other` lacks.
Names lacking(const Slots& slots, const Slots& other) {
  Names missing;
  for (const auto& [name, module] : slots) {
    if (!is_bias(name) && !other.contains(name)) return missing;
  }
  for (const auto& [name, module] : other) {
    if (slots.contains(name)) continue;
    if (is_bias(name) && !stored_alike(slots, name.substr(0, name.rfind(' ')), *module)) continue;
    missing.push_back(name);
  }
  return missing;
}

// The first layer may go without what others take from layers before it, and without a norm.
bool may_lack(const Names& missing, const Slots& usual) {
  return std::none_of(missing.begin(), missing.end(),
                      [&](const std::string& name) { return is_projection(usual.at(name)->role); });
}

// Nothing goes without q or o, or without k beside v: layers that share keys and values lack both,
// those whose values are the keys lack v.
bool is_needed(const std::string& name, const Slots& slots) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  const std::string block = name.substr(0, dot + 1);
  const bool value = slots.contains(block + "v_proj") || slots.contains(block + "attn_v");
  const bool begun = value || slots.contains(block + "q_proj");
  const std::string_view last = std::string_view(name).substr(dot + 1);
  return (value && last == "k_proj") || (begun && (last == "q_proj" || last == "o_proj"));
}

enum class Whole { no, yes };
enum class Part { layer, block };

class LayerParts {
 public:
  // `whole`: the config says how many layers there are; else single matrices may be all.
  LayerParts(Validation& validation, const LayerKinds& kinds, std::string path,
             const SlotStack& stack, Whole whole, Part part)
      : validation_(validation),
        path_(std::move(path)),
        stack_(stack),
        whole_(whole == Whole::yes),
        part_(part) {
    for (const auto& [number, slots] : stack_) {
      std::string names;
      for (const auto& [name, module] : slots) names += name + "\n";
      Alike& alike = kinds_[kinds.of(number)][names];
      alike.slots = &slots;
      ++alike.count;
      group_of_[number] = {kinds.of(number), names};
    }
  }

  // Layers in `told` are left out, those that lack something are added to it.
  void run(std::set<int>& told) {
    for (const auto& [number, slots] : stack_) {
      if (told.contains(number)) continue;
      const auto& [kind, names] = group_of_.at(number);
      const Groups& groups = kinds_.at(kind);
      if (groups.size() < 2 || groups.size() > most_groups) continue;
      if (groups.at(names).count > 1) continue;
      const bool lacks_block = part_ == Part::layer && check_block(number, slots, groups);
      if (lacks_block || check_names(number, slots, groups)) {
        told.insert(number);
      }
    }
  }

 private:
  using Groups = std::map<std::string, Alike>;
  // More are no kinds of anything.
  static constexpr std::size_t most_groups = 32;

  static bool any_mixer(const Slots& slots) {
    return std::any_of(slots.begin(), slots.end(),
                       [](const auto& one) { return is_mixer(one.first, *one.second); });
  }
  static bool any_mlp(const Slots& slots) {
    return std::any_of(slots.begin(), slots.end(),
                       [](const auto& one) { return is_mlp(one.second->role); });
  }

  // Where all other layers have both an attention and an MLP, one does not lack either.
  bool check_block(int number, const Slots& slots, const Groups& groups) {
    const bool mixer = any_mixer(slots);
    if (!whole_ || mixer == any_mlp(slots)) return false;
    for (const auto& [names, alike] : groups) {
      if (alike.slots != &slots && !(any_mixer(*alike.slots) && any_mlp(*alike.slots)))
        return false;
    }
    report(number, mixer ? "no MLP" : "no attention", "one, as all other layers have");
    return true;
  }

  // Most other layers of the kind are alike and this one alone lacks something of what they have.
  bool check_names(int number, const Slots& slots, const Groups& groups) {
    const Alike* usual = nullptr;
    for (const auto& [names, alike] : groups) {
      const Names missing = lacking(slots, *alike.slots);
      const auto needed = std::find_if(missing.begin(), missing.end(),
                                       [&](const auto& name) { return is_needed(name, slots); });
      if (whole_ && needed != missing.end()) {
        report(number, "no " + *needed, "one, as other layers have");
        return true;
      }
      if (!missing.empty() && (usual == nullptr || alike.count > usual->count)) usual = &alike;
    }
    // Three in all are enough where the other two are alike.
    const bool all_others = whole_ && groups.size() == 2 && usual != nullptr;
    if (usual == nullptr || usual->count + (all_others ? 1 : 0) < enough) return false;
    const Names missing = lacking(slots, *usual->slots);
    if (2 * missing.size() > usual->slots->size()) return false;
    if (number == 0 && may_lack(missing, *usual->slots)) return false;
    std::string text;
    for (const std::string& name : missing) text += (text.empty() ? "" : ", ") + name;
    report(number, "no " + text.substr(0, 200),
           fmt::format("what {} other layers have", usual->count));
    return true;
  }

  void report(int number, std::string found, std::string expected) {
    validation_.groups.add(Role::other,
                           {Level::warning, "tensor-missing", fmt::format("{}.{}", path_, number),
                            std::move(found), std::move(expected)});
  }

  Validation& validation_;
  std::string path_;
  const SlotStack& stack_;
  bool whole_;
  Part part_;
  std::map<std::string, Groups> kinds_;  // by names
  std::map<int, std::pair<std::string, std::string>> group_of_;
};

// Experts and routers have rules of their own; layers may have fewer of them.
bool has_own_rule(const Module& module) {
  return module.expert != -1 || module.role == Role::router || module.role == Role::router_bias ||
         !module.unreadable.empty();
}

std::string shape_of(const Module& module) {
  return module.k == 0 ? fmt::format("[{}]", module.n)
                       : fmt::format("[{}, {}]", module.n, module.k);
}

// Of two layers the one is wrong that has no matrix, or not the size of the model.
bool is_odd(const std::string& name, const Module& module, const Module& other,
            std::optional<std::int64_t> hidden) {
  if (module.k == 0 && other.k != 0) return true;
  if (!hidden) return false;
  const bool transposed = module.n == other.k && module.k == other.n && module.k != 0;
  const bool norm = other.k == 0 && name.find("norm") != std::string::npos;
  return (transposed && other.k == *hidden) || (norm && other.n == *hidden);
}

// The same module of all layers of a kind has one shape.
class LayerShapes {
 public:
  LayerShapes(const LayerKinds& kinds, const SlotStack& stack) {
    for (const auto& [number, slots] : stack) {
      for (const auto& [name, module] : slots) {
        if (is_bias(name) || has_own_rule(*module)) continue;
        Shapes& shapes = shapes_[{kinds.of(number), name}];
        Same& same = shapes[{module->n, module->k}];
        same.example = module;
        ++same.count;
      }
    }
  }

  void report(Validation& validation, std::optional<std::int64_t> hidden) const {
    for (const auto& [key, shapes] : shapes_) {
      if (shapes.size() != 2) continue;
      const Same* odd = &shapes.begin()->second;
      const Same* usual = &shapes.rbegin()->second;
      const bool other_way =
          odd->count > usual->count || (odd->count == usual->count &&
                                        is_odd(key.second, *usual->example, *odd->example, hidden));
      if (other_way) std::swap(odd, usual);
      const bool sure =
          usual->count >= enough || is_odd(key.second, *odd->example, *usual->example, hidden);
      if (odd->count != 1 || !sure) continue;
      validation.add(
          *odd->example, Level::warning, "tensor-shape", odd->example->name,
          shape_of(*odd->example),
          fmt::format(
              "{} as in {}{}", shape_of(*usual->example), usual->example->name,
              usual->count > 1 ? fmt::format(" and {} more layers", usual->count - 1) : ""));
    }
  }

 private:
  struct Same {
    const Module* example = nullptr;
    std::size_t count = 0;
  };
  using Shapes = std::map<std::pair<std::int64_t, std::int64_t>, Same>;
  std::map<std::pair<std::string, std::string>, Shapes> shapes_;  // by kind and name
};

// The stack of each part of the layers, "self_attn", "mlp" or "" for what stands beside those: two
// layers may have the same attention and different MLPs.
std::map<std::string, SlotStack> blocks_of(const SlotStack& stack) {
  std::map<std::string, SlotStack> blocks;
  for (const auto& [number, slots] : stack) {
    for (const auto& [name, module] : slots) {
      const std::size_t dot = name.find('.');
      blocks[dot == std::string::npos ? "" : name.substr(0, dot)][number].emplace(name, module);
    }
  }
  return blocks;
}

}  // namespace

void validate_layer_parts(Validation& validation, const ModelHints& hints,
                          const std::set<std::string>& told_before) {
  for (auto& [path, stack] : slots_of(validation.identified)) {
    const auto stated = hints.num_layers;
    if (stated && !stack.empty() && stack.begin()->first < *stated) {
      std::erase_if(stack, [&](const auto& one) { return one.first >= *stated; });
    }
    const std::int64_t span = stack.empty() ? 0 : stack.rbegin()->first + 1;
    const LayerKinds kinds(validation.checkpoint, stated.value_or(span));
    const Whole whole = stated ? Whole::yes : Whole::no;
    std::set<int> told;
    for (const auto& [number, slots] : stack) {
      if (told_before.contains(fmt::format("{}.{}", path, number))) told.insert(number);
    }
    LayerParts(validation, kinds, path, stack, whole, Part::layer).run(told);
    for (const auto& [block, part] : blocks_of(stack)) {
      LayerParts(validation, kinds, path, part, whole, Part::block).run(told);
    }
    LayerShapes(kinds, stack).report(validation, hints.hidden_size);
  }
}

}  // namespace fewbit
