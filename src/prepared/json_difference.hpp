// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "checkpoint/json.hpp"

namespace fewbit {

// The first place where two values differ, with the text of both sides; "nothing" for an absent
// one. `path` is "layers[3].problem.top_k". Empty: they are equal.
struct JsonDifference {
  std::string path;
  std::string expected;
  std::string found;
};
std::optional<JsonDifference> json_difference(const Json& expected, const Json& found,
                                              const std::string& path = "");

}  // namespace fewbit
