// SPDX-License-Identifier: Apache-2.0
// What stands beside integer codes, whatever their width: scales, zero points, group numbers.
#pragma once

#include "scheme/int8.hpp"

namespace fewbit {

// Fills scale, zero points and act-order of `scheme` for codes [n, k] of draft.module. Returns what
// does not fit, with both sides; empty when all does.
std::string read_integer_parts(const Inventory& inventory, const Draft& draft,
                               const IntegerOptions& options, Scheme& scheme);

// The part under its name behind a dot, or the one behind an underscore of fused experts:
// "weight_scale" or "scale". nullptr when there is neither.
const TensorInfo* integer_part(const Draft& draft, std::string_view suffix);

}  // namespace fewbit
