// SPDX-License-Identifier: Apache-2.0
// Over how many ranks each backend takes a layer, as text and JSON.
#pragma once

#include <string>

#include "checkpoint/json.hpp"
#include "fewbit/selection.hpp"

namespace fewbit::cli {

// For the backends of the engine that take any number of ranks: which, and why not the next one;
// backends that take the same share the lines.
std::string splits_by_backend_text(const MoeProblem& whole, const DeviceInfo& device,
                                   Engine engine);
// All numbers of ranks; those refused for the same reason share an entry, with "{ranks}" for their
// number in its words.
Json splits_by_backend_json(const MoeProblem& whole, const DeviceInfo& device, Engine engine);

}  // namespace fewbit::cli
