// SPDX-License-Identifier: Apache-2.0
// What explain answers, as text and JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/json.hpp"
#include "select/decide_layer.hpp"
#include "splits.hpp"

namespace fewbit::cli {

// Layers of one shape and one scheme, and the decision about each of them.
struct LayerAnswer {
  std::vector<int> layers;  // empty: a layer without a checkpoint
  MoeProblem whole;
  LayerDecision decision;
};

struct Answer {
  std::vector<LayerAnswer> layers;  // at least one
  std::string unknown;              // not empty: a layer that is not among them, and why
  bool preparable = false;          // a source that `prepare` could be asked to take
  std::optional<Splits> splits;     // of the whole model, where it is known
  Parallel parallel;
  DeviceInfo device;
  Engine engine = Engine::fewbit;
};

// The first layers for which nothing is chosen; nullptr: there are none.
const LayerAnswer* refused_layers(const Answer& answer);
// What the chosen backend computes calls of some tokens by (select/run_variants.hpp).
Json variants_json(const MoeProblem& problem, const DeviceInfo& device, const Selection& selection);
std::string answer_text(const Answer& answer);
Json answer_json(const Answer& answer);

}  // namespace fewbit::cli
