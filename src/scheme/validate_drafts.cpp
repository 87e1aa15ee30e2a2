// SPDX-License-Identifier: Apache-2.0
// Token-prediction layers: configs rarely list them, so the tensors alone say how they are stored.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "scheme/config_section.hpp"
#include "scheme/model_json.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

bool is_projection_of_layer(const Module& module) {
  switch (module.role) {
    case Role::gate_proj:
    case Role::up_proj:
    case Role::down_proj:
    case Role::gate_up_proj:
    case Role::q_proj:
    case Role::k_proj:
    case Role::v_proj:
    case Role::o_proj:
      return true;
    default:
      return false;
  }
}

bool has_mtp_component(const Module& module) {
  const auto parts = split_dots(module.name);
  return std::any_of(parts.begin(), parts.end(),
                     [](std::string_view part) { return part == "mtp" || part == "mtp_layers"; });
}

// Behind num_hidden_layers, or under a name of their own.
bool is_draft(const Module& module, std::int64_t layers) {
  return has_mtp_component(module) || (module.layer >= layers && is_projection_of_layer(module));
}

std::optional<std::int64_t> layer_count(const Checkpoint& checkpoint) {
  const auto config = read_model_json(checkpoint);
  if (!config || config->root == nullptr) return std::nullopt;
  const auto count =
      ConfigSection(*config->root, config->name).integer({"num_hidden_layers"}, 1, INT32_MAX);
  return count ? *count : std::nullopt;
}

using Schemes = std::map<std::string, std::uint64_t>;  // matrices by scheme

std::string text(const Schemes& schemes) {
  std::string out;
  for (const auto& [scheme, count] : schemes) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, scheme);
  }
  return out;
}

}  // namespace

void validate_drafts(Validation& validation) {
  const auto layers = layer_count(validation.checkpoint);
  if (!layers) return;
  Schemes draft;
  Schemes model;
  std::set<std::pair<Role, std::string>> usual;  // of the model's layers
  std::vector<std::pair<const Module*, std::string>> drafts;
  for (const Module& module : validation.identified.modules) {
    const bool is_one = is_draft(module, *layers);
    if (module.k == 0 || (!is_one && !is_projection_of_layer(module))) continue;
    const std::string scheme =
        module.unreadable.empty() ? scheme_text(module.scheme) : module.unreadable;
    ++(is_one ? draft : model)[scheme];
    if (is_one) {
      drafts.emplace_back(&module, scheme);
    } else {
      usual.emplace(module.role, scheme);
    }
  }
  // Matrices without a role in the model, such as its input projection, are compared with nothing.
  const auto other = std::find_if(drafts.begin(), drafts.end(), [&](const auto& one) {
    return is_projection_of_layer(*one.first) && !usual.contains({one.first->role, one.second});
  });
  if (other == drafts.end() || validation.identified.producer == Producer::unquantized) return;
  const Module* example = other->first;
  validation.add(*example, Level::info, "draft-scheme", example->name,
                 "token-prediction layers: " + text(draft),
                 "not the same as the model: " + text(model));
}

}  // namespace fewbit
