// SPDX-License-Identifier: Apache-2.0
// Scales of activations: not used with 16-bit activations, but those who quantize activations fail
// where they are missing or no numbers.
#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "scheme/name_parts.hpp"
#include "scheme/passing_tensor.hpp"
#include "scheme/scale_values.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

constexpr std::string_view names[] = {"input_scale", "input_global_scale", "input_scale_2",
                                      "activation_scale", "qscale_act"};

const TensorInfo* input_scale(const Validation& validation, const Module& module) {
  for (const std::string_view name : names) {
    if (!module.part(name).empty()) return validation.checkpoint.find(module.part(name));
  }
  return nullptr;
}

// The value, of a scale that is one plausible number.
std::optional<float> check_value(Validation& validation, const Module& module,
                                 const TensorInfo& info) {
  const PassingTensor tensor(validation.checkpoint, info);
  const auto counts = count_scale_values(info.dtype, tensor.bytes());
  if (!counts || counts->values == 0) return std::nullopt;
  if (counts->not_finite + counts->negative + counts->zero == 0) {
    return counts->values == 1 ? std::optional(counts->largest) : std::nullopt;
  }
  validation.add(module, Level::warning, "input-scale-value", info.name,
                 fmt::format("{} of {} NaN or infinite, {} negative, {} zero", counts->not_finite,
                             counts->values, counts->negative, counts->zero),
                 "finite numbers above zero; an expert that calibration never reached has others",
                 double(counts->not_finite + counts->negative + counts->zero));
  return std::nullopt;
}

struct Seen {
  std::set<int> with;
  std::set<int> without;
  const Module* example = nullptr;
  std::map<int, const Module*> ones;  // whose scale is 1, as before any calibration
  bool calibrated = false;            // another one is not
};

void report_ones(Validation& validation, const std::string& layer, const Seen& seen) {
  if (seen.ones.empty() || !seen.calibrated) return;
  std::string experts;
  for (const auto& [expert, module] : seen.ones) {
    if (experts.size() < 80) experts += fmt::format("{}{}", experts.empty() ? "" : ", ", expert);
  }
  const Module& first = *seen.ones.begin()->second;
  validation.add(
      first, Level::warning, "input-scale-default", first.name,
      fmt::format("a scale of activations of 1 in {} of {} experts of {}: {}", seen.ones.size(),
                  seen.with.size() + seen.without.size(), layer, experts),
      "one that was measured, as others have; calibration never reached these");
}

// Modules of one name in all layers, beside the experts.
struct Alike {
  std::int64_t with = 0;
  std::int64_t without = 0;
  const Module* example = nullptr;
};
using Kind = std::tuple<std::string, Producer, DType>;

Kind kind_of(const Module& module) {
  return {std::string(split_dots(module.name).back()), module.scheme.producer,
          module.scheme.weight};
}

void report_alike(Validation& validation, const std::map<Kind, Alike>& kinds) {
  for (const auto& [kind, alike] : kinds) {
    if (alike.with == 0 || alike.without == 0) continue;
    validation.add(*alike.example, Level::info, "input-scale-missing", alike.example->name,
                   fmt::format("{} of {} {} without a scale of activations", alike.without,
                               alike.with + alike.without, std::get<0>(kind)),
                   "one for each, where activations are to be quantized");
  }
}

}  // namespace

void validate_input_scales(Validation& validation) {
  std::map<std::pair<std::string, Role>, Seen> layers;
  std::map<Kind, Alike> kinds;
  for (const Module& module : validation.identified.modules) {
    if (!module.scheme.quantized()) continue;
    const TensorInfo* info = input_scale(validation, module);
    std::optional<float> value;
    if (info != nullptr && validation.depth != Depth::headers) {
      value = check_value(validation, module, *info);
    }
    if (module.layer >= 0 && module.expert < 0) {
      Alike& alike = kinds[kind_of(module)];
      ++(info != nullptr ? alike.with : alike.without);
      if (info == nullptr && alike.example == nullptr) alike.example = &module;
    }
    if (module.layer < 0 || module.expert < 0) continue;
    Seen& seen = layers[{layer_path(module.name), module.role}];
    (info != nullptr ? seen.with : seen.without).insert(module.expert);
    if (info == nullptr && seen.example == nullptr) seen.example = &module;
    if (value == 1.0F) seen.ones.emplace(module.expert, &module);
    seen.calibrated = seen.calibrated || (value && *value != 1.0F);
  }
  report_alike(validation, kinds);
  for (const auto& [key, seen] : layers) {
    report_ones(validation, key.first, seen);
    if (seen.with.empty() || seen.without.empty()) continue;
    validation.add(
        *seen.example, Level::info, "input-scale-missing", seen.example->name,
        fmt::format("{} of {} experts of {} without a scale of activations", seen.without.size(),
                    seen.with.size() + seen.without.size(), key.first),
        "one for each, where activations are to be quantized");
  }
}

}  // namespace fewbit
