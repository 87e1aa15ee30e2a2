// SPDX-License-Identifier: Apache-2.0
// Which rows of a fused q, k and v matrix are whose.
#pragma once

#include <array>
#include <optional>

#include "fewbit/scheme.hpp"

namespace fewbit {

bool is_fused_qkv(const Module& module);

// Rows of q, k and v by the numbers of heads in config.json; empty when they are not there or do
// not add up to n.
std::optional<std::array<std::int64_t, 3>> qkv_rows(const Checkpoint& checkpoint, std::int64_t n);

}  // namespace fewbit
