// SPDX-License-Identifier: Apache-2.0
#include "scheme/scale_parts.hpp"

namespace fewbit {
namespace {

constexpr std::string_view names[] = {"weight_scale_inv", "weight_scale", "scale",
                                      "scale_inv",        "scales_inv",   "scales",
                                      "qscale_weight"};

}  // namespace

std::vector<std::string_view> scale_parts(const Module& module) {
  std::vector<std::string_view> found;
  for (const std::string_view name : names) {
    if (!module.part(name).empty()) found.push_back(name);
  }
  return found;
}

}  // namespace fewbit
