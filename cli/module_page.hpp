// SPDX-License-Identifier: Apache-2.0
// One module of a checkpoint, and one expert of experts that are stored in one tensor.
#pragma once

#include <string>

#include "command.hpp"

namespace fewbit::cli {

// "[8 x 256, 128]" of 8 experts in one tensor, "[256, 128]", "[256]" of a vector.
std::string module_shape_text(const Module& module);
Json module_json(const Checkpoint& checkpoint, const Module& module);
// Role, scheme, shape, evidence, and every tensor with dtype, shape and bytes.
void print_module(const Checkpoint& checkpoint, const Module& module);

// The module, and of one expert's matrix the decoded weights and the scales, each with a
// histogram. Errors: invalid_argument, where --expert (not one of several, out of range); of
// canonicalize.
Result<int> show_expert(const Checkpoint& checkpoint, const Module& module, std::int64_t expert,
                        bool as_json);

}  // namespace fewbit::cli
