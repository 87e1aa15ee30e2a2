// SPDX-License-Identifier: Apache-2.0
// Tensors beside a weight whose names say scale and that no reader knows.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/ascii.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Of models, not of quantizers.
constexpr std::string_view models_own[] = {"layer_scale", "layerscale",        "logit_scale",
                                           "embed_scale", "per_expert_scale",  "layer_scalar",
                                           "attn_scale",  "scale_shift_table", "router_scale"};

bool sounds_like_a_scale(std::string_view name) {
  const std::string lower = lower_ascii(name);
  if (std::find(std::begin(models_own), std::end(models_own), lower) != std::end(models_own)) {
    return false;
  }
  for (const std::string_view word : {"scale", "scaling", "absmax", "amax"}) {
    if (lower.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void validate_unread_scales(Validation& validation) {
  for (const Module& module : validation.identified.modules) {
    const std::size_t dot = module.name.rfind('.');
    if (dot == std::string::npos || module.scheme.quantized()) continue;
    if (!sounds_like_a_scale(std::string_view(module.name).substr(dot + 1))) continue;
    const Module* owner = validation.identified.find(module.name.substr(0, dot));
    if (owner == nullptr || owner->k == 0 || owner->part("weight").empty()) continue;
    const TensorInfo* scale = validation.checkpoint.find(module.name);
    if (scale == nullptr) continue;
    validation.add(*owner, Level::warning, "scale-unread", scale->name,
                   fmt::format("{} {} beside {}", dtype_name(scale->dtype),
                               shape_text(scale->shape), owner->part("weight")),
                   "a scale under a name that is known: nothing applies this one");
  }
}

}  // namespace fewbit
