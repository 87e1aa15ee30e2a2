// SPDX-License-Identifier: Apache-2.0
// Tensors below a quantized matrix under names that no reader knows ("weight_offset", "codebook",
// "smooth_scale", an adapter): they would change its values, and nothing applies them.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "scheme/name_parts.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

// Of models, not of quantizers: beside routers and embeddings.
constexpr std::string_view models_own[] = {"e_score_correction_bias", "expert_bias", "moe_statics"};

// Of the outputs, and what only repeats what the codes say.
constexpr std::string_view free_parts[] = {"output_zero_point", "weight_amax", "weight_shape"};

bool is_models_own(std::string_view name) {
  const std::vector<std::string_view> parts = split_dots(name);
  return std::any_of(parts.begin(), parts.end(), [](std::string_view part) {
    return is_table(part) || is_models_own_scale(part) ||
           std::find(std::begin(models_own), std::end(models_own), part) != std::end(models_own);
  });
}

Draft* find_matrix(Inventory& inventory, std::string_view name) {
  Draft* draft = inventory.find(name);
  const bool matrix =
      draft != nullptr && draft->module.scheme.quantized() && has_weight(draft->module);
  return matrix ? draft : nullptr;
}

// "experts.down_proj" of "experts.down_proj_weight_offset": suffixes of fused experts follow an
// underscore.
std::string_view fused_owner(std::string_view name) {
  for (const std::string_view module : {"gate_up_proj", "down_proj", "gate_proj", "up_proj"}) {
    const std::string_view last = name.substr(name.rfind('.') + 1);
    if (last.size() > module.size() && last.starts_with(module) && last[module.size()] == '_') {
      return name.substr(0, name.size() - last.size() + module.size());
    }
  }
  return {};
}

// The quantized matrix that a module stands below.
Draft* owner_of(Inventory& inventory, std::string_view name) {
  if (Draft* owner = find_matrix(inventory, fused_owner(name))) return owner;
  for (std::size_t dot = name.rfind('.'); dot != std::string_view::npos; dot = name.rfind('.')) {
    name = name.substr(0, dot);
    if (Draft* owner = find_matrix(inventory, name)) return owner;
  }
  return nullptr;
}

}  // namespace

std::string_view unapplied_part(const Draft& draft, std::span<const std::string_view> applied) {
  for (const Module::Part& part : draft.module.parts) {
    const auto is_it = [&](std::string_view name) { return name == part.suffix; };
    const bool known = std::any_of(applied.begin(), applied.end(), is_it) ||
                       std::any_of(std::begin(free_parts), std::end(free_parts), is_it) ||
                       is_activation_suffix(part.suffix);
    if (!known && is_quantization_suffix(part.suffix) && !is_weight_suffix(part.suffix)) {
      return part.suffix;
    }
  }
  return {};
}

std::string unapplied_text(const Draft& draft, std::string_view kind,
                           std::span<const std::string_view> applied) {
  const std::string_view part = unapplied_part(draft, applied);
  if (part.empty()) return "";
  return fmt::format("{} beside {} codes: what it does to the weights is not known", part, kind);
}

void refuse_companions(Inventory& inventory) {
  for (Draft& draft : inventory.drafts) {
    if (is_models_own(draft.module.name)) continue;
    Draft* owner = owner_of(inventory, draft.module.name);
    if (owner == nullptr) continue;
    const TensorInfo& info = *draft.tensors.front();
    const std::string companion =
        fmt::format("{} ({} {})", info.name, dtype_name(info.dtype), shape_text(info.shape));
    if (owner->module.unreadable.empty()) {
      owner->module.unreadable = companion +
                                 " is beside the codes, and what it does to them is "
                                 "not known";
    }
    if (!draft.module.unreadable.empty()) continue;  // named for what it is
    Scheme scheme;
    scheme.producer = owner->module.scheme.producer;
    scheme.weight = info.dtype;
    draft.refuse(scheme, fmt::format("beside the codes of {} under a name that is not known",
                                     owner->module.name));
  }
}

}  // namespace fewbit
