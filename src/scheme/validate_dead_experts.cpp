// SPDX-License-Identifier: Apache-2.0
// Experts that training or calibration never reached: their scales are nearly zero.
#include <fmt/format.h>

#include <algorithm>

#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Below this part of the usual scale of the layer.
constexpr double nearly_zero = 1e-6;

std::string list_of(const std::vector<int>& experts) {
  std::string text;
  for (const int expert : experts) {
    if (text.size() > 60) return text + ", …";
    text += fmt::format("{}{}", text.empty() ? "" : ", ", expert);
  }
  return text;
}

}  // namespace

void ExpertScales::add(const Module& module, int expert, double largest) {
  if (module.layer < 0) return;
  layers_[{layer_path(module.name), module.role}].push_back({expert, largest, &module});
}

void ExpertScales::report(Validation& validation) const {
  for (const auto& [key, experts] : layers_) {
    std::vector<double> sorted;
    for (const Expert& one : experts) sorted.push_back(one.largest);
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    const double usual = *middle;
    std::vector<int> dead;
    double most = 0;
    const Module* example = nullptr;
    for (const Expert& one : experts) {
      if (one.largest >= usual * nearly_zero) continue;
      dead.push_back(one.expert);
      most = std::max(most, one.largest);
      if (example == nullptr) example = one.module;
    }
    if (dead.empty()) continue;
    validation.add(*example, Level::warning, "expert-dead",
                   fmt::format("{} {}", key.first, role_name(key.second)),
                   fmt::format("experts {} ({} of {}) have scales up to {:g}", list_of(dead),
                               dead.size(), experts.size(), most),
                   fmt::format("about {:g} as the other experts", usual), double(dead.size()));
  }
}

}  // namespace fewbit
