// SPDX-License-Identifier: Apache-2.0
// Where matrices that belong together are stored in different ways. Each is read by itself here;
// programs that fuse them can't.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

bool same_storage(const Scheme& a, const Scheme& b) {
  return a.producer == b.producer && a.weight == b.weight && a.packing == b.packing &&
         a.scale == b.scale && a.zero_points == b.zero_points;
}

std::string storage_text(const Module& module) {
  return module.unreadable.empty() ? scheme_text(module.scheme) : module.unreadable;
}

// "0 to 3, 7"
std::string ranges_text(const std::set<int>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    if (text.size() > 60) return text + ", …";
    const int first = *at;
    int last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    text += text.empty() ? "" : ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last);
  }
  return text;
}

// Matrices that run-time programs make one of: q, k and v; gate and up.
enum class Fusion { none, qkv, gate_up, shared_gate_up };
Fusion fusion_of(Role role) {
  switch (role) {
    case Role::q_proj:
    case Role::k_proj:
    case Role::v_proj:
      return Fusion::qkv;
    case Role::gate_proj:
    case Role::up_proj:
      return Fusion::gate_up;
    case Role::shared_gate_proj:
    case Role::shared_up_proj:
      return Fusion::shared_gate_up;
    default:
      return Fusion::none;
  }
}

void validate_fusions(Validation& validation) {
  std::map<std::tuple<std::string, int, Fusion>, std::vector<const Module*>> groups;
  for (const Module& module : validation.identified.modules) {
    const Fusion fusion = fusion_of(module.role);
    if (fusion == Fusion::none || module.layer < 0 || module.k == 0) continue;
    groups[{layer_path(module.name), module.expert, fusion}].push_back(&module);
  }
  for (const auto& [key, modules] : groups) {
    const Module& first = *modules.front();
    const bool same = std::all_of(modules.begin(), modules.end(), [&](const Module* other) {
      return same_storage(first.scheme, other->scheme) ||
             (!first.scheme.quantized() && !other->scheme.quantized());
    });
    if (same) continue;
    std::string found;
    for (const Module* module : modules) {
      found += fmt::format("{}{} {}", found.empty() ? "" : ", ", role_name(module->role),
                           storage_text(*module));
    }
    validation.add(first, Level::warning, "fused-schemes-differ", first.name, std::move(found),
                   "one scheme for parts that engines fuse; they are kept apart here");
  }
}

// Numbers for the schemes of a checkpoint; modules in order of name mostly repeat the last one.
class StorageNumbers {
 public:
  int of(const Module& module) {
    if (last_ != nullptr && last_->scheme == module.scheme &&
        last_->unreadable == module.unreadable) {
      return number_;
    }
    last_ = &module;
    const std::string text = storage_text(module);
    number_ = static_cast<int>(std::find(texts_.begin(), texts_.end(), text) - texts_.begin());
    if (number_ == static_cast<int>(texts_.size())) texts_.push_back(text);
    return number_;
  }
  const std::string& text(int number) const { return texts_[static_cast<std::size_t>(number)]; }

 private:
  std::vector<std::string> texts_;
  const Module* last_ = nullptr;
  int number_ = 0;
};

struct Kinds {
  std::map<int, std::set<int>> members;  // by storage: experts, or layers
  const Module* example = nullptr;

  void add(const Module& module, int storage, int member) {
    members[storage].insert(member);
    if (example == nullptr) example = &module;
  }
  std::string text(const StorageNumbers& storages, const char* unit) const {
    std::string out;
    for (const auto& [storage, list] : members) {
      out += fmt::format("{}{} in {} {}", out.empty() ? "" : "; ", storages.text(storage), unit,
                         ranges_text(list));
    }
    return out;
  }
};

void validate_experts_alike(Validation& validation) {
  std::map<std::pair<Role, std::string>, Kinds> by_layer;
  std::map<Role, Kinds> by_role;
  StorageNumbers storages;
  for (const Module& module : validation.identified.modules) {
    if (module.layer < 0 || module.expert == -1 || module.role == Role::other) continue;
    const int storage = storages.of(module);
    if (module.expert >= 0) {
      by_layer[{module.role, layer_path(module.name)}].add(module, storage, module.expert);
    }
    by_role[module.role].add(module, storage, module.layer);
  }
  std::set<Role> mixed;
  for (const auto& [key, kinds] : by_layer) {
    if (kinds.members.size() < 2) continue;
    mixed.insert(key.first);
    validation.add(*kinds.example, Level::info, "experts-mixed",
                   fmt::format("{} {}", key.second, role_name(key.first)),
                   kinds.text(storages, "experts"), "nothing: each expert has its own scheme");
  }
  for (const auto& [role, kinds] : by_role) {
    if (kinds.members.size() < 2 || mixed.contains(role)) continue;
    validation.add(*kinds.example, Level::info, "layers-mixed",
                   fmt::format("expert {}", role_name(role)), kinds.text(storages, "layers"),
                   "nothing: each layer has its own scheme");
  }
}

}  // namespace

void validate_schemes(Validation& validation) {
  // Files of blocks choose a type a tensor on purpose.
  if (validation.identified.producer == Producer::gguf) return;
  validate_fusions(validation);
  validate_experts_alike(validation);
}

}  // namespace fewbit
