// SPDX-License-Identifier: Apache-2.0
// Tensors beside a weight whose names say scale and that no reader knows.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/ascii.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Of models too, but never below a matrix.
constexpr std::string_view models_own[] = {"layerscale", "layer_scalar", "attn_scale",
                                           "scale_shift_table", "router_scale"};

// Where a name begins to say scale; npos where it does not.
std::size_t find_scale_word(std::string_view name) {
  const std::string lower = lower_ascii(name);
  if (is_models_own_scale(lower) ||
      std::find(std::begin(models_own), std::end(models_own), lower) != std::end(models_own)) {
    return std::string::npos;
  }
  std::size_t first = std::string::npos;
  for (const std::string_view word : {"scale", "scaling", "absmax", "amax"}) {
    first = std::min(first, lower.find(word));
  }
  return first;
}

bool is_matrix(const Module* module) {
  return module != nullptr && module->k > 0 && !module->part("weight").empty();
}

// The matrix "w13" or "w13_weight" of "w13_weight_scale", "gate_up_proj" of "gate_up_scale".
const Module* sibling_of(const Identified& identified, std::string_view name, std::size_t word) {
  std::string stem(name.substr(0, word));
  while (stem.ends_with('_')) stem.pop_back();
  if (stem.empty() || stem.ends_with('.')) return nullptr;
  constexpr std::string_view weight = "_weight";
  const std::string bare =
      stem.ends_with(weight) ? stem.substr(0, stem.size() - weight.size()) : stem;
  for (const std::string& matrix : {stem, bare, bare + std::string(weight), bare + "_proj"}) {
    const Module* found = identified.find(matrix);
    if (is_matrix(found)) return found;
  }
  return nullptr;
}

// A tensor named as a scale alone, and one of the experts' that belongs to none of their matrices.
bool is_stray(const Module& module) {
  const std::vector<std::string_view> parts = split_dots(module.name);
  const bool experts = std::find(parts.begin(), parts.end(), "experts") != parts.end();
  return experts || (parts.size() == 1 && is_quantization_suffix(module.name));
}

void check(Validation& validation, const Module& module) {
  const TensorInfo* scale = validation.checkpoint.find(module.name);
  if (scale == nullptr) return;
  const std::size_t dot = module.name.rfind('.');
  const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
  const std::string_view last = std::string_view(module.name).substr(begin);
  const std::size_t word = find_scale_word(last);
  if (word == std::string::npos) return;
  const Identified& identified = validation.identified;
  const Module* owner =
      dot == std::string::npos ? nullptr : identified.find(module.name.substr(0, dot));
  // A norm has factors by nature, but none of its weight.
  const bool beside = is_matrix(owner) || (owner != nullptr && !owner->part("weight").empty() &&
                                           last.starts_with("weight"));
  if (!beside) owner = sibling_of(identified, module.name, begin + word);
  if (owner == nullptr && !is_stray(module)) return;
  validation.add(
      owner != nullptr ? *owner : module, Level::warning, "scale-unread", scale->name,
      fmt::format("{} {}{}", dtype_name(scale->dtype), shape_text(scale->shape),
                  owner != nullptr ? fmt::format(" beside {}", owner->part("weight")) : ""),
      "a scale under a name that is known: nothing applies this one");
}

}  // namespace

void validate_unread_scales(Validation& validation) {
  for (const Module& module : validation.identified.modules) {
    if (!module.scheme.quantized()) check(validation, module);
  }
}

}  // namespace fewbit
