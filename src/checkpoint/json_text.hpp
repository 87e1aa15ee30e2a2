// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checkpoint/json.hpp"

namespace fewbit {

// A value as a message shows it: one line in which numbers that are not finite have the names under
// which Python writes them (Infinity, NaN). dump() gives strict JSON.
std::string json_text(const Json& value);
// Shortened, so that a long list does not fill the screen.
std::string value_text(const Json& value);

}  // namespace fewbit
