// SPDX-License-Identifier: Apache-2.0
// Names as values of a quantization config: of an algorithm, a format, a type. A value of another
// kind, an empty and a blank one are none: check_config_values() reports them, and readers take
// what they would have named for unknown, not for absent.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/json.hpp"

namespace fewbit {

// nullptr where the value is absent, null or no name.
const std::string* word_of(const Json* value);
// There, not null, and no name.
bool is_odd_word(const Json* value);
// Empty where word_of() is nullptr.
std::string word_at(const Json& block, std::string_view key);

}  // namespace fewbit
