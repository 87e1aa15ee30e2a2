// SPDX-License-Identifier: Apache-2.0
// The matrices of one dense MLP or shared expert against each other.
#include <fmt/format.h>

#include <map>
#include <string_view>

#include "core/text_search.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

struct Mlp {
  const Module* gate = nullptr;
  const Module* up = nullptr;  // or gate and up in one
  const Module* down = nullptr;
  bool fused = false;
};

const Module** place_of(Mlp& mlp, const Module& module) {
  switch (module.role) {
    case Role::gate_proj:
    case Role::shared_gate_proj:
      return &mlp.gate;
    case Role::up_proj:
    case Role::shared_up_proj:
      return &mlp.up;
    case Role::gate_up_proj:
    case Role::shared_gate_up_proj:
      mlp.fused = true;
      return &mlp.up;
    case Role::down_proj:
    case Role::shared_down_proj:
      return &mlp.down;
    default:
      return nullptr;
  }
}

// Routed experts are compared with each other and with the config.
bool is_judged(const Module& module) {
  return module.layer >= 0 && module.expert == -1 && module.experts == 0 && module.k > 0 &&
         module.unreadable.empty() && !contains_text(module.name, "lora");
}

void check(Validation& validation, const Module& module, std::int64_t n, std::int64_t k,
           const Module& other) {
  if (module.n == n && module.k == k) return;
  validation.add(module, Level::error, "mlp-shape", module.name,
                 fmt::format("[{}, {}]", module.n, module.k),
                 fmt::format("[{}, {}] beside {} [{}, {}]", n, k, other.name, other.n, other.k));
}

void check_mlp(Validation& validation, const Mlp& mlp) {
  if (mlp.up == nullptr) return;
  if (mlp.gate != nullptr && !mlp.fused) {
    check(validation, *mlp.gate, mlp.up->n, mlp.up->k, *mlp.up);
  }
  if (mlp.down == nullptr) return;
  // Without a gate of its own it may hold the gate too.
  const bool both = mlp.gate == nullptr && mlp.up->n == 2 * mlp.down->k;
  const std::int64_t inner = both || mlp.fused ? mlp.up->n / 2 : mlp.up->n;
  check(validation, *mlp.down, mlp.up->k, inner, *mlp.up);
}

}  // namespace

void validate_mlp_shapes(Validation& validation) {
  std::map<std::string_view, Mlp> mlps;
  for (const Module& module : validation.identified.modules) {
    const std::size_t dot = module.name.rfind('.');
    if (!is_judged(module) || dot == std::string::npos) continue;
    Mlp mlp;
    if (place_of(mlp, module) == nullptr) continue;
    *place_of(mlps[std::string_view(module.name).substr(0, dot)], module) = &module;
  }
  for (const auto& [name, mlp] : mlps) check_mlp(validation, mlp);
}

}  // namespace fewbit
