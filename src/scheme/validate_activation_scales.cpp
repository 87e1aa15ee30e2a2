// SPDX-License-Identifier: Apache-2.0
// Scales of quantized activations and caches: kept in 16 bits here, so nothing uses them.
#include <fmt/format.h>

#include <algorithm>

#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Old exporters call the scales of the cache the outputs' of k_proj and v_proj.
bool is_cache_scale(const Module& module, std::string_view suffix) {
  constexpr std::string_view names[] = {"k_scale",
                                        "v_scale",
                                        "k_bias",
                                        "v_bias",
                                        "kv_scale",
                                        "kv_fake_quantizer.qscale_act",
                                        "q_fake_quantizer.qscale_act",
                                        "k_fake_quantizer.qscale_act",
                                        "v_fake_quantizer.qscale_act"};
  const bool cached = module.role == Role::k_proj || module.role == Role::v_proj;
  return (suffix == "output_scale" && cached) ||
         std::find(std::begin(names), std::end(names), suffix) != std::end(names);
}

bool is_output_scale(std::string_view suffix) {
  return suffix == "output_scale" || suffix == "prob_output_scale" || suffix == "output_zero_point";
}

}  // namespace

void validate_activation_scales(Validation& validation, const Module& module) {
  for (const Module::Part& part : module.parts) {
    if (part.suffix == "weight_scale_inv" && !module.scheme.quantized()) {
      validation.add(module, Level::warning, "scale-unapplied", part.tensor,
                     "a scale beside weights in " + scheme_text(module.scheme),
                     "none: it is taken for a left-over and not applied");
    } else if (is_activation_scale(part.suffix)) {
      const auto& activation = module.scheme.activation;
      validation.add(module, Level::info, "input-scale-unused", part.tensor,
                     activation
                         ? fmt::format("a scale for {}-bit activations", dtype_bits(*activation))
                         : "a scale for quantized activations",
                     "nothing: weights are used with 16-bit activations");
    } else if (part.suffix == "weight_scale_2" && module.scheme.weight == DType::i4) {
      validation.add(module, Level::info, "input-scale-unused", part.tensor,
                     "a factor for products in 8 bits", "nothing: weights are decoded without it");
    } else if (is_cache_scale(module, part.suffix)) {
      validation.add(module, Level::info, "cache-scale-unused", part.tensor,
                     "a scale for a quantized key/value cache", "nothing: the cache has 16 bits");
    } else if (is_output_scale(part.suffix)) {
      validation.add(module, Level::info, "output-scale-unused", part.tensor,
                     "a scale for quantized outputs", "nothing: outputs have 16 bits");
    }
  }
}

}  // namespace fewbit
