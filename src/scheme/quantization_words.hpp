// SPDX-License-Identifier: Apache-2.0
// Whether a member of a config speaks of quantized weights, in whatever words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/json.hpp"

namespace fewbit {

// path: of the object that it is in ("audio_config."). False for what is said of caches, of
// activations, and of signals in a codec's section; for values that say nothing (says_nothing).
bool speaks_of_quantization(std::string_view path, std::string_view key, const Json& value);

// Keys of an object that say so together: "group_size" and "sym". Empty where one stands alone, and
// beside those of a codec.
std::vector<std::string> weak_quantization_keys(std::string_view path, const Json& object);

}  // namespace fewbit
