// SPDX-License-Identifier: Apache-2.0
// Configs that say static activations, whose scales are then in the file.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "scheme/compressed_tensors_config.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/fp8_config.hpp"
#include "scheme/modelopt_config.hpp"
#include "scheme/modelopt_formats.hpp"
#include "scheme/quark_config.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

bool has_activation_scale(const Module& module) {
  return std::any_of(module.parts.begin(), module.parts.end(), [](const Module::Part& part) {
    const std::string_view suffix = part.suffix;
    const bool of_inputs = suffix.find("input") != std::string_view::npos ||
                           suffix.find("act") != std::string_view::npos;
    return of_inputs && suffix.find("scale") != std::string_view::npos;
  });
}

// A block of activations that says it is not dynamic, in so many words.
bool is_static(const Json* inputs, std::string_view key) {
  if (inputs != nullptr && inputs->as_array() != nullptr && !inputs->as_array()->empty()) {
    inputs = &inputs->as_array()->back();
  }
  const Json* dynamic = inputs != nullptr && inputs->is_object() ? inputs->find(key) : nullptr;
  return dynamic != nullptr && dynamic->as_bool() == false;
}

const Json* member(const Json* block, std::string_view key) {
  return block != nullptr && block->is_object() ? block->find(key) : nullptr;
}

bool modelopt_is_static(const Json& block) {
  const Json* groups = member(&block, "config_groups");
  const Json::Object* members = groups != nullptr ? groups->as_object() : nullptr;
  return members != nullptr && !members->empty() &&
         std::all_of(members->begin(), members->end(), [](const auto& one) {
           return is_static(member(&one.second, "input_activations"), "dynamic");
         });
}

// W4A16_NVFP4, FP8_PB_WO: 16-bit activations; FP8_PER_CHANNEL_PER_TOKEN: measured while running.
bool lacks_input_scales(std::string_view algorithm) {
  return algorithm.find("A16") != algorithm.npos || algorithm.ends_with("_WO") ||
         algorithm.find("PER_TOKEN") != algorithm.npos;
}

// ModelOpt's "NVFP4" has them by name, where no group of settings says more. A checkpoint with a
// scale anywhere was calibrated, and what lacks one is told elsewhere.
void check_named_static(Inventory& inventory) {
  const Declaration* first = inventory.declared.first();
  const auto config = first != nullptr ? read_modelopt_config(*first) : std::nullopt;
  if (!config || config->algorithm != "NVFP4" || config->quantized_layers) return;
  if (member(first->block, "config_groups") != nullptr) return;
  std::int64_t count = 0;
  const Module* example = nullptr;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    if (has_activation_scale(module)) return;
    if (module.scheme.producer != Producer::modelopt || !module.unreadable.empty()) continue;
    if (!modelopt_algorithm_fits(config->algorithm, module)) continue;
    if (count++ == 0) example = &module;
  }
  if (count == 0) return;
  inventory.findings.push_back(
      {Level::warning, "input-scale-missing", config->where,
       fmt::format("quant_algo NVFP4, but no scale of activations at any of {} matrices such as {}",
                   count, example->name),
       "one for each matrix, or W4A16_NVFP4, which engines run without any"});
}

// What each producer's config says of a module.
class Asked {
 public:
  explicit Asked(const Inventory& inventory)
      : fp8_(read_fp8_config(inventory.declared)),
        ct_(CtConfig::read(inventory.declared, inventory.drafts)),
        quark_(read_quark_config(inventory.declared)) {
    const Declaration* first = inventory.declared.first();
    if (first == nullptr || !first->block->is_object()) return;
    where_ = first->where;
    modelopt_ = first->producer == Producer::modelopt && modelopt_is_static(*first->block)
                    ? read_modelopt_config(*first)
                    : std::nullopt;
  }

  bool any() const { return modelopt_ || quark_ || ct_ || (fp8_ && fp8_->activation == "static"); }

  // The algorithm by which a module has no such scales, whatever ModelOpt's groups say; else empty.
  std::string unscaled_by(const Module& module) const {
    if (!modelopt_ || module.scheme.producer != Producer::modelopt) return {};
    std::string algorithm = modelopt_algorithm(*modelopt_, module.name);
    return lacks_input_scales(algorithm) ? algorithm : std::string();
  }

  // Where it says static; empty when it does not.
  std::string where(const Module& module) const {
    switch (module.scheme.producer) {
      case Producer::modelopt:
        return modelopt_ ? where_ : "";
      case Producer::quark:
        return quark_where(module);
      case Producer::fp8:
        return fp8_ && fp8_->activation == "static" ? fp8_->where : "";
      case Producer::compressed_tensors: {
        const CtGroup* group = ct_ ? ct_->group_of(module) : nullptr;
        const bool fixed = group != nullptr && group->activations && group->activations->fixed;
        return fixed ? ct_->where() + " " + group->name : "";
      }
      default:
        return "";
    }
  }

 private:
  std::string quark_where(const Module& module) const {
    const auto settings = quark_ ? quark_->settings_of(module) : std::nullopt;
    const Json* inputs = settings ? member(settings->config, "input_tensors") : nullptr;
    return is_static(inputs, "is_dynamic") ? settings->where : "";
  }

  std::optional<Fp8Config> fp8_;
  std::optional<CtConfig> ct_;
  std::optional<QuarkConfig> quark_;
  std::string where_;
  std::optional<ModeloptConfig> modelopt_;  // where its groups say static
};

// Groups of settings of ModelOpt that are static, of modules whose algorithm is not.
struct Contradicted {
  std::int64_t count = 0;
  std::string example;
  std::string algorithm;
  std::string where;

  void add(const Module& module, const std::string& by, const std::string& place) {
    if (count++ > 0) return;
    example = module.name;
    algorithm = by;
    where = place;
  }

  void report(Inventory& inventory) const {
    if (count == 0) return;
    inventory.findings.push_back(
        {Level::info, "config-places-differ", where,
         fmt::format("config_groups with static activations, of {} matrices such as {}", count,
                     example),
         fmt::format("none, as quant_algo {} and the tensors have it", algorithm)});
  }
};

}  // namespace

void check_static_activations(Inventory& inventory) {
  check_named_static(inventory);
  const Asked asked(inventory);
  if (!asked.any()) return;
  // Experts that calibration never reached lack theirs: compared with each other elsewhere.
  const bool experts_have =
      std::any_of(inventory.drafts.begin(), inventory.drafts.end(), [](const Draft& draft) {
        return draft.module.expert >= 0 && has_activation_scale(draft.module);
      });
  FindingGroups groups;
  Contradicted contradicted;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    if (!module.scheme.quantized() || !module.unreadable.empty()) continue;
    if (module.role == Role::embedding || is_prediction(inventory, module)) continue;
    if (dtype_bits(module.scheme.weight) > 8 || (module.expert >= 0 && experts_have)) continue;
    if (has_activation_scale(module)) continue;
    const std::string where = asked.where(module);
    if (where.empty()) continue;
    if (const std::string algorithm = asked.unscaled_by(module); !algorithm.empty()) {
      contradicted.add(module, algorithm, where);
      continue;
    }
    groups.add(module.role, {Level::warning, "input-scale-missing", module.name,
                             "no scale of activations beside " + module.evidence,
                             where + " says that activations are static: one for each matrix"});
  }
  contradicted.report(inventory);
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
