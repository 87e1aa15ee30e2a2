// SPDX-License-Identifier: Apache-2.0
// What the chosen backend computes calls of a layer by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fewbit/selection.hpp"

namespace fewbit {

struct RunVariant {
  std::int64_t tokens = 0;
  std::string text;  // "panels of 1 token at even routing, 1 a weight pass"
};
// Of 1, 16 and 512 tokens on that device. Empty: nothing is chosen, or for another engine, which
// decides that itself.
std::vector<RunVariant> run_variants(const MoeProblem& problem, const DeviceInfo& device,
                                     const Selection& selection);

}  // namespace fewbit
