// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "checkpoint/gguf.hpp"

namespace fewbit {

// The header of a file that is not on disk; errors name it f.gguf.
inline Result<GgufHeader> parse(std::string_view file) {
  return parse_gguf(std::as_bytes(std::span(file)), "f.gguf");
}

}  // namespace fewbit
