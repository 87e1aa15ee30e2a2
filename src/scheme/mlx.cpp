// SPDX-License-Identifier: Apache-2.0
// MLX: u32 words along the rows, lowest bits first. Affine ones have a scale and a bias a group;
// those of mxfp4, mxfp8 and nvfp4 are the codes of these formats, with a byte a group for a scale.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "checkpoint/json_text.hpp"
#include "core/checked.hpp"
#include "core/quote.hpp"
#include "scheme/affine_claim.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/mlx_config.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/near_names.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

bool is_ours(const Draft& draft) {
  const TensorInfo* weight = draft.tensor("weight");
  return weight != nullptr && weight->dtype == DType::u32 && draft.has("scales");
}

// Floats in words: sets the sizes, and says what does not fit.
class FloatClaim {
 public:
  FloatClaim(Draft& draft, const MlxSettings& settings, const MlxMode& mode)
      : draft_(draft), settings_(settings), mode_(mode) {
    const bool eight = mode.bits == 8;
    scheme_.producer = Producer::mlx;
    scheme_.weight = eight ? DType::f8_e4m3 : DType::f4_e2m1;
    scheme_.packing = eight ? Packing::none : Packing::nibbles_k;
    const DType scale = mode.name == "nvfp4" ? DType::f8_e4m3 : DType::f8_e8m0;
    scheme_.scale = ScaleSpec{scale, Granularity{1, mode.group_size}};
  }

  void run() {
    std::string why = obstacle();
    draft_.refuse(scheme_, std::move(why));
  }

 private:
  std::string obstacle() {
    if (settings_.bits != mode_.bits || settings_.group_size != mode_.group_size) {
      const auto shown = [](const std::optional<std::int64_t>& value) {
        return value ? fmt::format("{}", *value) : std::string("unknown");
      };
      return fmt::format("mode {} with bits {} and group_size {} in {}, expected {} and {}",
                         mode_.name, shown(settings_.bits), shown(settings_.group_size),
                         settings_.where, mode_.bits, mode_.group_size);
    }
    constexpr std::string_view applied[] = {"weight", "scales"};
    const std::string odd =
        unapplied_text(draft_, "MLX " + std::string(mode_.name), std::span(applied));
    return odd.empty() ? read_sizes() : odd;
  }

  std::string read_sizes() {
    Module& module = draft_.module;
    const TensorInfo& weight = *draft_.tensor("weight");
    const TensorInfo& scales = *draft_.tensor("scales");
    const Shape& shape = weight.shape;
    const bool stacked = shape.size() == 3 && module.expert == all_experts;
    if (shape.size() != 2 && !stacked) {
      return fmt::format("MLX words of shape {}, expected [rows, words]", shape_text(shape));
    }
    const auto k = checked_mul(shape.back(), std::int64_t{32} / mode_.bits);
    Shape grid = shape;
    grid.back() = k.value_or(0) / mode_.group_size;
    const bool whole = k && *k % mode_.group_size == 0 &&
                       std::all_of(grid.begin(), grid.end(), [](auto size) { return size > 0; });
    const bool bytes = scales.dtype == DType::u8 || scales.dtype == scheme_.scale->dtype;
    if (!whole || scales.shape != grid || !bytes) {
      return fmt::format("weight {} {} of mode {} ({} columns) with scales {} {}, expected u8 {}",
                         dtype_name(weight.dtype), shape_text(shape), mode_.name, k.value_or(0),
                         dtype_name(scales.dtype), shape_text(scales.shape), shape_text(grid));
    }
    module.n = shape[shape.size() - 2];
    module.k = *k;
    if (stacked) module.experts = shape[0];
    return "";
  }

  Draft& draft_;
  const MlxSettings& settings_;
  const MlxMode& mode_;
  Scheme scheme_;
};

void refuse(Draft& draft, std::string why) {
  Scheme scheme;
  scheme.producer = Producer::mlx;
  scheme.weight = DType::u32;
  draft.refuse(scheme, std::move(why));
}

void claim(Draft& draft, const MlxConfig& config) {
  const MlxSettings settings = config.of(draft.module.name);
  const MlxMode* mode = find_mlx_mode(settings.mode);
  if (mode == nullptr) {
    refuse(draft, fmt::format("mode {} of {} is not known, expected affine, mxfp4, mxfp8 or nvfp4",
                              quote(settings.mode), settings.where));
  } else if (mode->name != "affine") {
    FloatClaim(draft, settings, *mode).run();
  } else if (!draft.has("biases")) {
    refuse(draft, fmt::format("MLX words of mode affine by {} without biases", settings.where));
  } else {
    AffineSpec spec{
        .bits = settings.bits, .group_size = settings.group_size, .where = settings.where};
    claim_affine(draft, spec);
  }
}

// An entry of its own that says the opposite of the tensors.
void check_entry(const MlxConfig& config, const Module& module, FindingGroups& groups) {
  const auto entry = config.entries().find(module.name);
  if (entry == config.entries().end()) return;
  const bool quantized = module.scheme.quantized();
  const bool plain = entry->second->as_bool() == false;
  const bool codes = entry->second->is_object() || entry->second->as_bool() == true;
  const std::string where = fmt::format("{} {}", config.where(), quote(module.name));
  if (quantized && plain) {
    groups.add(module.role, {Level::warning, "config-excludes-quantized", module.name,
                             "quantized tensors: " + module.evidence,
                             fmt::format("plain ones: {} is false", where)});
  }
  if (!quantized && codes) {
    groups.add(module.role,
               {Level::warning, "config-expects-quantized", module.name,
                "plain tensors: " + module.evidence,
                fmt::format("quantized ones: {} is {}", where, value_text(*entry->second))});
  }
}

// Entries that are none, or name nothing.
void check_entries(Inventory& inventory, const MlxConfig& config) {
  std::vector<std::string_view> unknown;
  for (const auto& [name, value] : config.entries()) {
    if (!value->is_object() && !value->as_bool() && !value->is_null()) {
      inventory.findings.push_back({Level::warning, "config-value", config.where(),
                                    fmt::format("{} {}", name, value_text(*value)),
                                    "an object of settings, true or false"});
    } else if (value->is_object() && inventory.find(name) == nullptr) {
      unknown.push_back(name);
    }
  }
  if (unknown.empty()) return;
  inventory.findings.push_back(
      {Level::warning, "config-layer-unknown", config.where(),
       fmt::format("{} entries match nothing, such as {}", unknown.size(),
                   quote(*std::min_element(unknown.begin(), unknown.end()))),
       "names of modules in the file"});
}

// The first key that one of two blocks lacks, or has with another value.
std::string differing_key(const Json& a, const Json& b) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const auto& [key, value] : *one->as_object()) {
      const Json* same = other->find(key);
      if (same == nullptr || same->dump() != value.dump()) return key;
    }
  }
  return {};
}

std::string shown_member(const Json& block, const std::string& key) {
  const Json* value = block.find(key);
  return " " + (value != nullptr ? value_text(*value) : std::string("absent"));
}

// Two blocks of which one is a copy.
void check_copies(Inventory& inventory, const MlxConfig& config) {
  const Json* first = nullptr;
  for (const Declaration& one : inventory.declared.all) {
    if (one.producer != Producer::mlx || !one.block->is_object()) continue;
    if (first == nullptr) first = one.block;
    if (const std::string key = differing_key(*one.block, *first); !key.empty()) {
      inventory.findings.push_back(
          {Level::warning, "config-places-differ", one.where, key + shown_member(*one.block, key),
           fmt::format("as in {}: {}{}", config.where(), key, shown_member(*first, key))});
    }
  }
}

}  // namespace

void claim_mlx(Inventory& inventory) {
  const Declaration* first = inventory.declared.first();
  if (first == nullptr || first->producer != Producer::mlx) return;
  const auto config = MlxConfig::read(inventory.declared);
  if (!config) return;
  for (Draft& draft : inventory.drafts) {
    if (!draft.claimed && is_ours(draft)) claim(draft, *config);
  }
}

void check_mlx(Inventory& inventory) {
  const auto config = MlxConfig::read(inventory.declared);
  if (!config) return;
  check_copies(inventory, *config);
  check_entries(inventory, *config);
  FindingGroups groups;
  for (const Draft& draft : inventory.drafts) check_entry(*config, draft.module, groups);
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
