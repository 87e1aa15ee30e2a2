// SPDX-License-Identifier: Apache-2.0
// NF3: 3-bit codes of a codebook, eight in three bytes, with an e4m3 scale a group of 32. Found in
// checkpoints of two tiers, whose config says which experts have it.
#include <fmt/format.h>

#include "core/ascii.hpp"
#include "core/checked.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/hybrid_config.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t group = 32;

const TensorInfo* codes_of(const Draft& draft) {
  const TensorInfo* packed = draft.tensor("weight_packed");
  return packed != nullptr ? packed : draft.tensor("weight");
}

// Three bytes for eight codes and a scale for 32: no other format has such a pair of shapes.
bool is_nf3(const Draft& draft) {
  const TensorInfo* codes = codes_of(draft);
  const TensorInfo* scale = draft.tensor("weight_scale");
  if (codes == nullptr || scale == nullptr || codes->dtype != DType::u8) return false;
  if (scale->dtype != DType::f8_e4m3 && scale->dtype != DType::u8) return false;
  if (draft.has("weight_global_scale") || draft.has("weight_scale_2")) return false;
  if (codes->shape.size() != 2 || scale->shape.size() != 2) return false;
  const std::int64_t bytes = codes->shape[1];
  if (codes->shape[0] != scale->shape[0] || bytes < 1 || bytes % 3 != 0) return false;
  const auto k = checked_mul(bytes / 3, std::int64_t{8});
  return k && ceil_div(*k, group) == scale->shape[1];
}

std::string obstacle_of(const std::optional<HybridConfig>& config, const TensorInfo& scale) {
  if (scale.dtype == DType::u8) {
    return "NF3 scales as u8: whether they are the e4m3 bits of a scale or of 16 times it is not "
           "stated in the file";
  }
  if (!config) return "NF3 codes, but no config has a hybrid_bit_map";
  if (!config->has_map) {
    return fmt::format("NF3 codes, and {} has kept_format without hybrid_bit_map", config->where);
  }
  if (!config->malformed.empty()) {
    return fmt::format("{}: {}, expected lists of 3 and 4", config->where, config->malformed);
  }
  return "";
}

void claim(Draft& draft, const std::optional<HybridConfig>& config) {
  const TensorInfo& codes = *codes_of(draft);
  draft.module.n = codes.shape[0];
  draft.module.k = codes.shape[1] / 3 * 8;
  Scheme scheme;
  scheme.producer = Producer::nf3;
  scheme.weight = DType::nf3;
  scheme.scale = ScaleSpec{DType::f8_e4m3, Granularity{1, group}, false, ScaleDirection::multiply};
  constexpr std::string_view applied[] = {"weight_scale"};
  std::string obstacle = obstacle_of(config, *draft.tensor("weight_scale"));
  if (obstacle.empty()) obstacle = unapplied_text(draft, "NF3", applied);
  if (obstacle.empty()) {
    draft.claim(scheme);
  } else {
    draft.refuse(scheme, std::move(obstacle));
  }
}

// Bits by the map; 4 where a layer is absent.
int mapped_bits(const HybridConfig& config, const Module& module) {
  const auto layer = config.bits.find(module.layer);
  if (layer == config.bits.end()) return 4;
  const auto expert = static_cast<std::size_t>(module.expert);
  return expert < layer->second.size() ? layer->second[expert] : 4;
}

// Names such as "mxfp4_e8m0k32" and "nvfp4_e4m3k16": codes, scales, columns a scale. What a name
// does not say, fits.
bool kept_fits(const std::string& name, const Module& module) {
  const std::string lower = lower_ascii(name);
  const auto says = [&](std::string_view word) { return lower.find(word) != std::string::npos; };
  const DType weight = module.scheme.weight;
  const std::string_view type = dtype_name(weight);
  if (says("fp4") && weight != DType::f4_e2m1) return false;
  if (says("fp8") && !type.starts_with("f8_")) return false;
  if (says("int4") && (dtype_bits(weight) != 4 || type.starts_with("f"))) return false;
  if (!module.scheme.scale || !module.unreadable.empty()) return true;
  const bool powers = module.scheme.scale->dtype == DType::f8_e8m0;
  if ((says("e8m0") || lower.starts_with("mx")) && !powers) return false;
  if (says("nvfp4") && powers) return false;
  const std::size_t at = lower.find_last_not_of("0123456789");
  const bool sized = at != std::string::npos && lower[at] == 'k' && at + 1 < lower.size();
  if (!sized) return true;
  const auto size = name_number(std::string_view(lower).substr(at + 1));
  const std::int64_t cols = module.scheme.scale->granularity.cols;
  return size && (cols == 0 ? module.k <= *size : cols == *size);
}

void check_expert(const HybridConfig& config, const Module& module, FindingGroups& groups) {
  const bool nf3 = module.scheme.weight == DType::nf3;
  const int bits = mapped_bits(config, module);
  if (nf3 != (bits == 3)) {
    groups.add(module.role, {Level::warning, "hybrid-bits", module.name,
                             fmt::format("{} bits by {}", bits, config.where),
                             scheme_text(module.scheme) + ", as the tensors say"});
  }
  if (nf3 || config.kept_format.empty() || kept_fits(config.kept_format, module)) return;
  groups.add(module.role, {Level::warning, "hybrid-kept-format", module.name,
                           "kept_format is " + config.kept_format,
                           scheme_text(module.scheme) + ", as the tensors say"});
}

void check_counts(Inventory& inventory, const HybridConfig& config) {
  std::map<int, std::size_t> experts;  // of a layer
  for (const Draft& draft : inventory.drafts) {
    if (draft.module.expert < 0) continue;
    std::size_t& count = experts[draft.module.layer];
    count = std::max(count, static_cast<std::size_t>(draft.module.expert) + 1);
  }
  for (const auto& [layer, bits] : config.bits) {
    const auto found = experts.find(layer);
    const std::size_t count = found != experts.end() ? found->second : 0;
    if (count == bits.size()) continue;
    inventory.findings.push_back({Level::error, "hybrid-map-size", config.where,
                                  fmt::format("{} entries for layer {}", bits.size(), layer),
                                  fmt::format("{}, one an expert", count)});
  }
}

// Read once for claiming and once for checking; both files are small.
std::optional<HybridConfig> config_of(const Inventory& inventory) {
  if (inventory.checkpoint == nullptr) return std::nullopt;
  auto config = read_hybrid_config(*inventory.checkpoint);
  return config ? *std::move(config) : std::nullopt;
}

}  // namespace

void claim_nf3(Inventory& inventory) {
  std::optional<std::optional<HybridConfig>> config;
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || !is_nf3(draft)) continue;
    if (!config) config = config_of(inventory);
    claim(draft, *config);
  }
}

void check_nf3(Inventory& inventory) {
  const std::optional<HybridConfig> config = config_of(inventory);
  if (!config) return;
  if (!config->odd_format.empty()) {
    inventory.findings.push_back({Level::warning, "config-value", config->where,
                                  "kept_format " + config->odd_format, "the name of a format"});
  }
  if (!config->has_map || !config->malformed.empty()) return;
  FindingGroups groups;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    if (module.expert >= 0 && module.scheme.quantized()) check_expert(*config, module, groups);
  }
  check_counts(inventory, *config);
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
