// SPDX-License-Identifier: Apache-2.0
// The routed experts of a layer, by number, whatever way they are stored.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "canonical/layer_experts.hpp"
#include "canonical/storage.hpp"

namespace fewbit {
namespace {

using ExpertModules = LayerExperts::Modules;

struct LayerModules {
  std::vector<ExpertModules> experts;  // by expert id
  ExpertModules fused;
  std::int64_t router_rows = 0;
  std::string name;  // of an expert module, for messages
};

const Module** slot(ExpertModules& modules, Role role) {
  switch (role) {
    case Role::gate_proj:
      return &modules.gate;
    case Role::up_proj:
      return &modules.up;
    case Role::down_proj:
      return &modules.down;
    case Role::gate_up_proj:
      return &modules.gate_up;
    default:
      return nullptr;
  }
}

Result<LayerModules> find_modules(const Identified& identified, int layer) {
  constexpr int most_experts = 1 << 16;
  LayerModules out;
  for (const Module& module : identified.modules) {
    if (module.layer != layer) continue;
    if (module.role == Role::router) out.router_rows = module.n;
    if (module.expert == -1 || slot(out.fused, module.role) == nullptr) continue;
    if (module.expert >= most_experts) {
      return Error{
          ErrorCode::limit,
          fmt::format("expert number {}, expected less than {}", module.expert, most_experts),
          module.name};
    }
    if (module.expert >= static_cast<int>(out.experts.size())) {
      out.experts.resize(static_cast<std::size_t>(module.expert) + 1);
    }
    ExpertModules& modules =
        module.expert < 0 ? out.fused : out.experts[static_cast<std::size_t>(module.expert)];
    const Module*& place = *slot(modules, module.role);
    if (place != nullptr) {
      return Error{ErrorCode::inconsistent,
                   fmt::format("{} of expert {} is stored twice, also as {}",
                               role_name(module.role), module.expert, place->name),
                   module.name};
    }
    place = &module;
    out.name = module.name;
  }
  return out;
}

bool is_complete(const ExpertModules& modules, bool gated) {
  if (modules.down == nullptr) return false;
  return modules.gate_up != nullptr ||
         (modules.up != nullptr && (!gated || modules.gate != nullptr));
}

// "1, 7, 12 and 30 more"
std::string list_text(const std::vector<std::size_t>& numbers) {
  constexpr std::size_t shown = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(numbers.size(), shown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", numbers[i]);
  }
  if (numbers.size() > shown) text += fmt::format(" and {} more", numbers.size() - shown);
  return text;
}

Result<void> check_complete(LayerModules& layer, int number) {
  if (layer.router_rows > static_cast<std::int64_t>(layer.experts.size()) &&
      layer.router_rows <= (1 << 16)) {
    layer.experts.resize(static_cast<std::size_t>(layer.router_rows));
  }
  const bool gated = std::any_of(layer.experts.begin(), layer.experts.end(),
                                 [](const ExpertModules& one) { return one.gate != nullptr; });
  std::vector<std::size_t> missing;
  for (std::size_t e = 0; e < layer.experts.size(); ++e) {
    if (!is_complete(layer.experts[e], gated)) missing.push_back(e);
  }
  if (missing.empty()) return {};
  return Error{ErrorCode::inconsistent,
               fmt::format("{} of {} experts are missing or incomplete: {}", missing.size(),
                           layer.experts.size(), list_text(missing)),
               fmt::format("layer {}", number)};
}

// One expert's gate_up_proj beside its gate_proj is read here, and the other left out.
Result<void> check_once(const ExpertModules& modules) {
  if (modules.gate_up == nullptr) return {};
  const Module* single = modules.gate != nullptr ? modules.gate : modules.up;
  if (single == nullptr) return {};
  return Error{
      ErrorCode::inconsistent,
      fmt::format("{} is stored twice, also in {}", role_name(single->role), modules.gate_up->name),
      single->name};
}

Result<void> check_not_fused_too(const LayerModules& layer) {
  const ExpertModules& fused = layer.fused;
  for (const Module* all : {fused.gate, fused.up, fused.down, fused.gate_up}) {
    if (all == nullptr) continue;
    return Error{ErrorCode::inconsistent,
                 fmt::format("experts are stored twice: all in this tensor, and {} single ones",
                             layer.experts.size()),
                 all->name};
  }
  for (const ExpertModules& one : layer.experts) FEWBIT_TRY(check_once(one));
  return {};
}

// The halves of a fused gate_up_proj and its bias.
Result<void> split_gate_up(const Checkpoint& checkpoint, const Module& module,
                           std::int64_t fused_expert, ExpertWeights& out) {
  if (module.name.ends_with("up_gate_proj")) {
    return Error{ErrorCode::unsupported,
                 "which half of up_gate_proj is gate and which up is not known", module.name};
  }
  FEWBIT_TRY(const QuantizedTensor both, canonicalize(checkpoint, module, fused_expert));
  if (both.n % 2 != 0) {
    return Error{ErrorCode::corrupt,
                 fmt::format("{} rows, expected an even number (gate and up rows)", both.n),
                 module.name};
  }
  const std::int64_t half = both.n / 2;
  auto gate = module.alternating ? every_second_row(both, 0) : slice_rows(both, 0, half);
  if (!gate) return Error{gate.error().code, gate.error().what, module.name};
  auto up = module.alternating ? every_second_row(both, 1) : slice_rows(both, half, half);
  if (!up) return Error{up.error().code, up.error().what, module.name};
  out.gate = *std::move(gate);
  out.up = *std::move(up);
  FEWBIT_TRY(const std::vector<float> bias, read_bias(checkpoint, module, fused_expert));
  for (std::size_t i = 0; i < bias.size(); ++i) {
    const bool to_up = module.alternating ? i % 2 == 1 : i >= bias.size() / 2;
    (to_up ? out.up_bias : out.gate_bias).push_back(bias[i]);
  }
  return {};
}

Result<ExpertWeights> read_expert(const Checkpoint& checkpoint, const ExpertModules& modules,
                                  std::int64_t fused_expert) {
  ExpertWeights out;
  FEWBIT_TRY(out.down, canonicalize(checkpoint, *modules.down, fused_expert));
  FEWBIT_TRY(out.down_bias, read_bias(checkpoint, *modules.down, fused_expert));
  if (modules.gate_up != nullptr) {
    FEWBIT_TRY(split_gate_up(checkpoint, *modules.gate_up, fused_expert, out));
    return out;
  }
  FEWBIT_TRY(out.up, canonicalize(checkpoint, *modules.up, fused_expert));
  FEWBIT_TRY(out.up_bias, read_bias(checkpoint, *modules.up, fused_expert));
  if (modules.gate == nullptr) return out;
  FEWBIT_TRY(out.gate, canonicalize(checkpoint, *modules.gate, fused_expert));
  FEWBIT_TRY(out.gate_bias, read_bias(checkpoint, *modules.gate, fused_expert));
  return out;
}

Result<void> check_matrix(const QuantizedTensor& tensor, std::int64_t n, std::int64_t k,
                          std::string_view what, std::size_t expert, int layer) {
  if (tensor.n == n && tensor.k == k) return {};
  return Error{ErrorCode::inconsistent,
               fmt::format("{} of expert {} is [{}, {}], expected [{}, {}]", what, expert, tensor.n,
                           tensor.k, n, k),
               fmt::format("layer {}", layer)};
}

Result<void> check_shapes(const MoeWeights& weights, int layer) {
  const std::int64_t hidden = weights.hidden_size;
  const std::int64_t inner = weights.intermediate_size;
  for (std::size_t e = 0; e < weights.experts.size(); ++e) {
    const ExpertWeights& expert = weights.experts[e];
    FEWBIT_TRY(check_matrix(expert.up, inner, hidden, "up_proj", e, layer));
    FEWBIT_TRY(check_matrix(expert.down, hidden, inner, "down_proj", e, layer));
    if (expert.gate) FEWBIT_TRY(check_matrix(*expert.gate, inner, hidden, "gate_proj", e, layer));
  }
  return {};
}

Result<std::int64_t> fused_count(const ExpertModules& fused, int layer) {
  const Module* first = fused.gate_up != nullptr ? fused.gate_up : fused.up;
  if (first == nullptr || fused.down == nullptr) {
    return Error{ErrorCode::inconsistent, "fused experts without both gate_up and down",
                 fmt::format("layer {}", layer)};
  }
  if (first->experts != fused.down->experts) {
    return Error{ErrorCode::inconsistent,
                 fmt::format("{} experts, but {} in {}", first->experts, fused.down->experts,
                             fused.down->name),
                 first->name};
  }
  return first->experts;
}

bool all_zero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return x == 0.0F; });
}

}  // namespace

Result<LayerExperts> LayerExperts::find(const Identified& identified, int layer) {
  FEWBIT_TRY(LayerModules modules, find_modules(identified, layer));
  if (modules.name.empty()) {
    return Error{ErrorCode::not_found, "no routed experts", fmt::format("layer {}", layer)};
  }
  LayerExperts out;
  if (modules.experts.empty()) {
    FEWBIT_TRY(check_once(modules.fused));
    FEWBIT_TRY(const std::int64_t count, fused_count(modules.fused, layer));
    out.fused_ = modules.fused;
    out.slices_ = count > 0;
    out.count_ = std::max<std::int64_t>(count, 1);
    return out;
  }
  FEWBIT_TRY(check_not_fused_too(modules));
  FEWBIT_TRY(check_complete(modules, layer));
  out.count_ = std::ssize(modules.experts);
  out.experts_ = std::move(modules.experts);
  return out;
}

const LayerExperts::Modules& LayerExperts::modules(std::int64_t expert) const {
  return experts_.empty() ? fused_ : experts_[static_cast<std::size_t>(expert)];
}

Result<ExpertWeights> LayerExperts::read(const Checkpoint& checkpoint, std::int64_t expert) const {
  return read_expert(checkpoint, modules(expert), slices_ ? expert : -1);
}

Result<bool> LayerExperts::has_zero_biases(const Checkpoint& checkpoint) const {
  const Module* without = nullptr;  // of an expert
  const Module* with = nullptr;     // whose bias is not zero
  for (std::int64_t e = 0; e < count_; ++e) {
    const Modules& of = modules(e);
    bool any = false;
    for (const Module* module : {of.gate, of.up, of.down, of.gate_up}) {
      if (module == nullptr || module->part("bias").empty()) continue;
      any = true;
      if (with != nullptr) continue;
      FEWBIT_TRY(const auto bias, read_bias(checkpoint, *module, slices_ ? e : -1));
      if (!all_zero(bias)) with = module;
    }
    if (!any && without == nullptr) without = of.down;
  }
  if (with == nullptr || without == nullptr) return with == nullptr;
  return Error{ErrorCode::inconsistent,
               fmt::format("a bias that is not zero, expected none as {} has none", without->name),
               with->name};
}

void drop_biases(ExpertWeights& expert) {
  for (std::vector<float>* bias : {&expert.gate_bias, &expert.up_bias, &expert.down_bias}) {
    bias->clear();
  }
}

Result<MoeWeights> gather_moe(const Checkpoint& checkpoint, const Identified& identified,
                              int layer) {
  FEWBIT_TRY(const LayerExperts experts, LayerExperts::find(identified, layer));
  MoeWeights out;
  for (std::int64_t e = 0; e < experts.count(); ++e) {
    FEWBIT_TRY(ExpertWeights weights, experts.read(checkpoint, e));
    out.experts.push_back(std::move(weights));
  }
  out.hidden_size = out.experts.front().up.k;
  out.intermediate_size = out.experts.front().up.n;
  FEWBIT_TRY(check_shapes(out, layer));
  FEWBIT_TRY(const bool zero_biases, experts.has_zero_biases(checkpoint));
  if (zero_biases) std::ranges::for_each(out.experts, drop_biases);
  return out;
}

}  // namespace fewbit
