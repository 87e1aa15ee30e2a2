// SPDX-License-Identifier: Apache-2.0
// Global scales that differ between gate and up, or between other matrices that engines hold as one
// with one global scale: that of gate in experts, one of the parts in other modules. GGUF's are
// applied tensor by tensor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/convert.hpp"
#include "scheme/fp4.hpp"
#include "scheme/fused_names.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

struct Pair {
  const Module* gate = nullptr;
  const Module* up = nullptr;
};

std::vector<Pair> pairs_of(const Identified& identified) {
  std::map<std::tuple<std::string, int, bool>, Pair> pairs;
  for (const Module& module : identified.modules) {
    if (module.scheme.producer == Producer::gguf || !module.unreadable.empty()) continue;
    const bool shared =
        module.role == Role::shared_gate_proj || module.role == Role::shared_up_proj;
    const bool gate = module.role == Role::gate_proj || module.role == Role::shared_gate_proj;
    const bool up = module.role == Role::up_proj || module.role == Role::shared_up_proj;
    if (!gate && !up) continue;
    const std::string parent = module.name.substr(0, module.name.rfind('.') + 1);
    Pair& pair = pairs[{parent, module.expert, shared}];
    (gate ? pair.gate : pair.up) = &module;
  }
  std::vector<Pair> out;
  for (const auto& [key, pair] : pairs) {
    if (pair.gate != nullptr && pair.up != nullptr) out.push_back(pair);
  }
  return out;
}

// Factors of the weights, one or one an expert; one over a divisor. Empty where they are of another
// shape, or of no type that holds them.
std::vector<float> global_scales(const Checkpoint& checkpoint, const Module& module) {
  const Fp4Parts parts = fp4_parts(module);
  const TensorInfo* global =
      parts.global.empty() ? nullptr : checkpoint.find(module.part(parts.global));
  // Of another type it is a fault of its own.
  const bool modelopt = module.scheme.producer == Producer::modelopt;
  if (global == nullptr || (modelopt && global->dtype != DType::f32)) return {};
  const TensorView view = checkpoint.tensor(*global).view;
  std::vector<float> values(view.bytes.size() * 8 /
                            static_cast<std::size_t>(dtype_bits(view.dtype)));
  const bool each = module.experts > 0 && std::ssize(values) == module.experts;
  if (values.size() != 1 && !each) return {};
  const Result<void> converted = convert_to_f32(view.dtype, view.bytes, values);
  checkpoint.release(*global);
  if (!converted) return {};
  if (parts.divisor) {
    for (float& value : values) value = 1.0F / value;
  }
  return values;
}

bool is_factor(float value) { return std::isfinite(value) && value > 0.0F; }

// What one kind of pairs has.
struct Globals {
  std::int64_t pairs = 0;
  std::int64_t differ = 0;
  float ratio = 1.0F;  // the largest
  const Module* first = nullptr;

  void add(const Module& gate, float a, float b) {
    // Others are a finding of their own.
    if (!is_factor(a) || !is_factor(b)) return;
    ++pairs;
    if (a == b) return;
    ++differ;
    if (first == nullptr) first = &gate;
    ratio = std::max({ratio, a / b, b / a});
  }

  // A role of its own for each kind, so that neither hides the other.
  void report(Validation& validation, Role role, std::string_view what,
              std::string_view engines) const {
    if (differ == 0) return;
    validation.groups.add(
        role,
        {Level::warning, "gate-up-global", first->name,
         fmt::format("global scales of gate and up differ in {} of {} {}, by up to {:.3g} times",
                     differ, pairs, what, ratio),
         fmt::format("one for both: engines that {} wrong by up to {:.3g} times", engines, ratio)});
  }
};

// Matrices under the name of the one that engines make of them, but for gates and ups.
std::map<std::string, std::vector<const Module*>> fused_of(const Identified& identified) {
  std::map<std::string, std::vector<const Module*>> out;
  for (const Module& module : identified.modules) {
    if (module.scheme.producer == Producer::gguf || !module.unreadable.empty()) continue;
    if (module.expert != -1 || !module.scheme.quantized()) continue;
    const std::string_view last = std::string_view(module.name).substr(module.name.rfind('.') + 1);
    for (const std::string& fused : fused_names_of(last)) {
      if (fused == "gate_up_proj" || fused == "w13") continue;
      if (fused == "fused_qkv_a_proj") continue;  // one more name of fused_qkv_a_proj_with_mqa
      out[with_last_component(module.name, fused)].push_back(&module);
    }
  }
  return out;
}

// The same of any number of parts, by the fused name's last component.
struct FusedGlobals {
  std::int64_t count = 0;
  std::int64_t differ = 0;
  float ratio = 1.0F;
  const Module* first = nullptr;
  std::string parts;

  void add(const Checkpoint& checkpoint, const std::vector<const Module*>& modules) {
    float least = INFINITY;
    float most = 0.0F;
    std::string names;
    for (const Module* module : modules) {
      const std::vector<float> values = global_scales(checkpoint, *module);
      if (values.size() != 1 || !is_factor(values.front())) return;
      least = std::min(least, values.front());
      most = std::max(most, values.front());
      names += (names.empty() ? "" : ", ") + module->name.substr(module->name.rfind('.') + 1);
    }
    ++count;
    if (least == most) return;
    ++differ;
    ratio = std::max(ratio, most / least);
    if (first != nullptr) return;
    first = modules.front();
    parts = names;
  }
};

void validate_fused_globals(Validation& validation) {
  std::map<std::string, FusedGlobals> kinds;
  for (const auto& [name, modules] : fused_of(validation.identified)) {
    if (modules.size() < 2) continue;
    kinds[name.substr(name.rfind('.') + 1)].add(validation.checkpoint, modules);
  }
  for (const auto& [fused, globals] : kinds) {
    if (globals.differ == 0) continue;
    // Of the others not every engine makes one matrix.
    const Level level = fused == "qkv_proj" ? Level::warning : Level::info;
    validation.groups.add(
        globals.first->role,
        {level, "fused-global", globals.first->name,
         fmt::format("global scales of {} differ in {} of {} layers, by up to {:.3g} times",
                     globals.parts, globals.differ, globals.count, globals.ratio),
         fmt::format("one for all: engines that hold them as one matrix ({}) have one, and compute "
                     "the others wrong by up to {:.3g} times",
                     fused, globals.ratio)});
  }
}

}  // namespace

void validate_gate_up_globals(Validation& validation) {
  if (validation.depth < Depth::scales) return;
  Globals experts;
  Globals others;
  for (const Pair& pair : pairs_of(validation.identified)) {
    const std::vector<float> gate = global_scales(validation.checkpoint, *pair.gate);
    const std::vector<float> up = global_scales(validation.checkpoint, *pair.up);
    const std::size_t count = std::max(gate.size(), up.size());
    const std::size_t fewer = std::min(gate.size(), up.size());
    if (fewer != count && fewer != 1) continue;
    Globals& globals = pair.gate->expert == -1 ? others : experts;
    for (std::size_t i = 0; i < count; ++i) {
      globals.add(*pair.gate, gate[gate.size() == 1 ? 0 : i], up[up.size() == 1 ? 0 : i]);
    }
  }
  experts.report(validation, Role::gate_proj, "experts", "take gate's compute up");
  others.report(validation, Role::shared_gate_proj, "MLPs",
                "take one of the two compute the other");
  validate_fused_globals(validation);
}

}  // namespace fewbit
