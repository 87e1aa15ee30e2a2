// SPDX-License-Identifier: Apache-2.0
// One matrix in two places: fused with others and by itself, under two names, or as codes and
// plain. A reader of one never sees the other, and they may differ.
#include <fmt/format.h>

#include <map>
#include <string>
#include <tuple>

#include "scheme/fused_names.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// The projections that a matrix holds.
std::vector<Role> projections_of(Role role) {
  switch (role) {
    case Role::gate_proj:
    case Role::up_proj:
    case Role::down_proj:
      return {role};
    case Role::gate_up_proj:
      return {Role::gate_proj, Role::up_proj};
    default:
      return {};
  }
}

// The routed experts of all layers, by projection.
class Experts {
 public:
  explicit Experts(Validation& validation) : validation_(validation) {}

  void add(const Module& module) {
    if (module.expert == -1 || !has_weight(module)) return;
    const std::string layer = layer_path(module.name);
    for (const Role role : projections_of(module.role)) {
      const auto [at, is_new] = single_.emplace(Key{layer, role, module.expert}, &module);
      if (!is_new) report(*at->second, module);
      if (module.expert >= 0) some_.emplace(std::pair(layer, role), &module);
    }
  }

  // Tensors that hold all experts beside single ones of the same layer.
  void compare() {
    for (const auto& [key, module] : single_) {
      const auto& [layer, role, expert] = key;
      const auto single = some_.find({layer, role});
      if (expert == all_experts && single != some_.end()) report(*module, *single->second);
    }
  }

 private:
  void report(const Module& first, const Module& second) {
    validation_.add(second, Level::error, "matrix-twice", second.name,
                    fmt::format("{} also in {}", role_name(second.role), first.name),
                    "each matrix of an expert once");
  }

  using Key = std::tuple<std::string, Role, int>;
  Validation& validation_;
  std::map<Key, const Module*> single_;
  std::map<std::pair<std::string, Role>, const Module*> some_;
};

// "qkv_proj" beside "q_proj".
void compare_parts(Validation& validation, const Module& fused) {
  if (fused.expert != -1 || !has_weight(fused)) return;
  const std::string_view name = fused.name;
  for (const std::string& part : fused_parts(name.substr(name.rfind('.') + 1))) {
    const Module* single = validation.identified.find(with_last_component(name, part));
    if (single == nullptr || !has_weight(*single)) continue;
    validation.add(fused, Level::error, "matrix-twice", fused.name,
                   fmt::format("{} also in {}", part, single->name), "each matrix once");
    return;
  }
}

// "weight" beside "weight_packed", or "experts.down_proj.weight" beside "experts.down_proj".
void compare_tensors(Validation& validation, const Module& module) {
  const TensorInfo* first = nullptr;
  for (const Module::Part& part : module.parts) {
    if (!is_weight_suffix(part.suffix)) continue;
    const TensorInfo* info = validation.checkpoint.find(part.tensor);
    if (info == nullptr || info->bytes == 0) continue;
    if (first != nullptr) {
      const auto text = [](const TensorInfo& one) {
        return fmt::format("{} ({} {})", one.name, dtype_name(one.dtype), shape_text(one.shape));
      };
      validation.add(module, Level::error, "matrix-twice", module.name,
                     fmt::format("{} and {}", text(*first), text(*info)), "each matrix once");
      return;
    }
    first = info;
  }
}

}  // namespace

void validate_twice(Validation& validation) {
  Experts experts(validation);
  for (const Module& module : validation.identified.modules) {
    experts.add(module);
    compare_parts(validation, module);
    compare_tensors(validation, module);
  }
  experts.compare();
}

}  // namespace fewbit
