// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "scheme/name_parts.hpp"

namespace fewbit {

// Of a module's name split at its dots; empty when it isn't one of GGUF's "blk.<layer>.<part>".
std::optional<ModuleRole> find_gguf_role(std::span<const std::string_view> parts);

}  // namespace fewbit
