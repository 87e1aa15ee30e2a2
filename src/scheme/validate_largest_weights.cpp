// SPDX-License-Identifier: Apache-2.0
// The largest weights of all matrices: what one may have, a whole model does not.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// The largest weight of half of all matrices is below this in every model; scales that were turned
// round give several hundred and more.
constexpr double usual_limit = 128;
// One matrix alone is judged by the limit for one.
constexpr std::size_t enough = 4;

}  // namespace

void LargestWeights::add(const Module& module, double largest) {
  // Float codes need not reach the largest one.
  const std::string_view type = dtype_name(module.scheme.weight);
  const bool integers = !type.starts_with("f") && !type.starts_with("nf");
  if (integers && largest > 0) matrices_.emplace_back(largest, &module);
}

void LargestWeights::report(Validation& validation) const {
  if (matrices_.size() < enough) return;
  auto sorted = matrices_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto [size, module] = *middle;
  // Above it, each matrix has a finding.
  if (size <= usual_limit || size > implausible_weight) return;
  validation.add(
      *module, Level::warning, "scale-direction", module->name,
      fmt::format("half of {} matrices have weights up to {:g} and more", sorted.size(), size),
      fmt::format("below {:g}; are the scales divisors?", usual_limit));
}

}  // namespace fewbit
