// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "scheme/name_parts.hpp"

namespace fewbit {

// Of a module's name split at its dots; empty when it isn't one of GGUF's "blk.<layer>.<part>".
std::optional<ModuleRole> find_gguf_role(std::span<const std::string_view> parts);

// Modules whose "scale" is a factor of Gemma 4 itself (of its router's input, of its experts'
// outputs), whatever the weights are stored as.
bool has_gemma4_scale(std::string_view module);

}  // namespace fewbit
