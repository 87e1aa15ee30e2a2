// SPDX-License-Identifier: Apache-2.0
// NVIDIA ModelOpt: which modules are its own, and its NVFP4. FP8 is left to the reader of FP8.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/checked.hpp"
#include "scheme/fp4.hpp"
#include "scheme/modelopt_config.hpp"
#include "scheme/modelopt_formats.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

constexpr std::string_view own_suffixes[] = {
    "weight_scale", "weight_scale_2",  "input_scale",     "input_amax",     "weight_amax",
    "lora_rank",    "pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b"};

bool has_only_own_suffixes(const Draft& draft) {
  return std::all_of(draft.module.parts.begin(), draft.module.parts.end(), [](const auto& part) {
    return !is_quantization_suffix(part.suffix) ||
           std::find(std::begin(own_suffixes), std::end(own_suffixes), part.suffix) !=
               std::end(own_suffixes);
  });
}

std::int64_t last(const TensorInfo& info) { return info.shape.empty() ? 1 : info.shape.back(); }
std::int64_t rows(const TensorInfo& info) {
  return info.shape.size() < 2 ? 1 : info.shape[info.shape.size() - 2];
}
// Two codes a byte against one scale a group; divides, for the sizes come from a file.
bool groups_fit(const TensorInfo& weight, const TensorInfo& scale, std::int64_t group) {
  return weight.shape.size() >= 2 && weight.shape.size() == scale.shape.size() &&
         last(weight) % (group / 2) == 0 && last(weight) / (group / 2) == last(scale) &&
         rows(weight) == rows(scale);
}
bool is_byte(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }

// NVFP4 is told by its tensors alone. Beyond it, tensors of the same names mean different things to
// different producers, so the config must say ModelOpt.
enum class Guess { not_ours, nvfp4, other };

Guess guess_storage(const Draft& draft, bool declared) {
  const TensorInfo* weight = draft.tensor("weight");
  const TensorInfo* scale = draft.tensor("weight_scale");
  const bool has_global = draft.has("weight_scale_2");
  if (scale == nullptr && !has_global && (weight == nullptr || !is_byte(weight->dtype))) {
    return Guess::not_ours;
  }
  if (!has_only_own_suffixes(draft)) return Guess::not_ours;
  const bool nvfp4_grid = weight != nullptr && scale != nullptr && scale->dtype == DType::f8_e4m3 &&
                          groups_fit(*weight, *scale, 16);
  const bool nvfp4_parts =
      weight != nullptr && has_global &&
      (scale == nullptr ? is_byte(weight->dtype) : scale->dtype == DType::f8_e4m3);
  if (nvfp4_grid || nvfp4_parts) return Guess::nvfp4;
  return declared ? Guess::other : Guess::not_ours;
}

// Why an NVFP4 module can't be read; empty when it can.
std::string nvfp4_obstacle(const Inventory& inventory, const Draft& draft) {
  const TensorInfo* weight = draft.tensor("weight");
  if (draft.has("svdquant_lora_a") || draft.has("svdquant_lora_b")) {
    return "ModelOpt NVFP4_SVD: its low-rank part (svdquant_lora) adds to the product and is not "
           "carried along";
  }
  if (weight == nullptr || weight->shape.size() != 3) return "";
  if (draft.module.expert != all_experts) {
    return fmt::format("weight of shape {} in a module that does not hold all experts",
                       shape_text(weight->shape));
  }
  if (draft.has("pre_quant_scale") && inventory.model_type == "gpt_oss") {
    return "fused experts of gpt-oss with pre_quant_scale: the order of their rows is not known";
  }
  return "";
}

// Columns a scale where the config states another number than NVFP4's 16 and the scales have it;
// else 16.
std::int64_t stated_group(const Draft& draft, const std::optional<ModeloptConfig>& config) {
  constexpr std::int64_t usual = 16;
  const TensorInfo* weight = draft.tensor("weight");
  const TensorInfo* scale = draft.tensor("weight_scale");
  if (!config || weight == nullptr || scale == nullptr || !is_byte(weight->dtype)) return usual;
  const auto fits = [&](std::int64_t size) {
    return size != usual && size > 0 && size % 2 == 0 && groups_fit(*weight, *scale, size);
  };
  const ModeloptConfig::Layer* layer = modelopt_layer(*config, draft.module.name);
  if (layer != nullptr && layer->group_size && fits(*layer->group_size)) return *layer->group_size;
  for (const std::string& text : config->group_sizes) {
    const auto size = group_size_number(text);
    if (size && fits(*size)) return *size;
  }
  return usual;
}

void claim_nvfp4(const Inventory& inventory, Draft& draft,
                 const std::optional<ModeloptConfig>& config) {
  Module& module = draft.module;
  if (const TensorInfo* weight = draft.tensor("weight"); weight != nullptr) {
    module.n = rows(*weight);
    const std::int64_t codes = weight->dtype == DType::f4_e2m1 ? 1 : 2;  // an element
    module.k = checked_mul(last(*weight), codes).value_or(0);
    if (weight->shape.size() == 3) module.experts = weight->shape[0];
  }
  Scheme scheme = nvfp4_scheme(Producer::modelopt);
  if (draft.has("input_scale")) scheme.activation = DType::f4_e2m1;
  scheme.pre_quant_scale = draft.has("pre_quant_scale");
  std::string obstacle = nvfp4_obstacle(inventory, draft);
  if (const std::int64_t group = stated_group(draft, config); group != 16) {
    scheme.scale->granularity.cols = group;
    obstacle = fmt::format(
        "NVFP4 codes with a scale for {} columns, as group_size {} of {} says: only groups of 16 "
        "are read",
        group, group, config->where);
  }
  const bool complete =
      draft.has("weight") && draft.has("weight_scale") && draft.has("weight_scale_2");
  if (obstacle.empty() && module.experts > 0 && complete && !scheme.pre_quant_scale) {
    // Either way round, and with gate and up in turn.
    claim_fp4(inventory, draft, Producer::modelopt, scheme.activation);
  } else if (obstacle.empty()) {
    draft.claim(scheme);
  } else {
    draft.refuse(scheme, std::move(obstacle));
  }
}

std::optional<ModeloptConfig> config_of(const Declared& declared) {
  for (const Declaration& one : declared.all) {
    if (auto config = read_modelopt_config(one)) return config;
  }
  return std::nullopt;
}

}  // namespace

void claim_modelopt(Inventory& inventory) {
  // Quark writes the same names with other types and another input scale.
  const Declaration* first = inventory.declared.first();
  if (first != nullptr && first->producer == Producer::quark) return;
  const bool declared = inventory.declared.says(Producer::modelopt);
  const std::optional<ModeloptConfig> config = config_of(inventory.declared);
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed) continue;
    const Guess guess = guess_storage(draft, declared);
    if (guess == Guess::not_ours) continue;
    const std::string algorithm =
        config ? modelopt_algorithm(*config, draft.module.name) : std::string();
    const ModeloptFormat format =
        guess == Guess::nvfp4 ? ModeloptFormat::none : modelopt_format(draft, algorithm);
    const TensorInfo* weight = draft.tensor("weight");
    if (format != ModeloptFormat::none) {
      claim_modelopt_format(inventory, draft, format, algorithm);
    } else if (guess == Guess::nvfp4 || is_byte(weight->dtype)) {
      claim_nvfp4(inventory, draft, config);
    }
  }
}

}  // namespace fewbit
