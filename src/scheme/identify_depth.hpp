// SPDX-License-Identifier: Apache-2.0
// Identification that leaves values unread, for those who promise to read headers only.
#pragma once

#include "fewbit/scheme.hpp"

namespace fewbit {

// identify(); `headers` takes GPTQ's act-order from the config, with a finding where g_idx might
// say something else. The few values without which a module can't be named are read all the same.
Result<Identified> identify(const Checkpoint& checkpoint, Depth depth);

}  // namespace fewbit
