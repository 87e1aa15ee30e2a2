// SPDX-License-Identifier: Apache-2.0
// What may stand under the keys of quantization blocks.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/json.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit {

// What should stand there; empty when the value can be used, is null (which says nothing) or stands
// under a key that fewbit knows no rule for. outermost: in the block itself, not deeper.
enum class KeyDepth { outermost, inner };
std::string expected_value(Producer producer, std::string_view key, const Json& value,
                           KeyDepth depth);

// Whether every member of the object under this key is an object of settings.
bool holds_settings(Producer producer, std::string_view key);

}  // namespace fewbit
