// SPDX-License-Identifier: Apache-2.0
// What may stand under the keys of quantization blocks.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/json.hpp"
#include "scheme/config_keys.hpp"

namespace fewbit {

// Behind what is expected where a null is told.
inline constexpr std::string_view null_is_absent = "; null is read as if the key were absent";

// Where a key stands: in the block itself or deeper, and under which key the object does.
struct KeyPlace {
  bool outermost = true;
  std::string_view in = {};
};

// The rule for a key; nullptr where there is none.
const ConfigKey* find_config_key(Producer producer, std::string_view name, const KeyPlace& place);

// What should stand there; empty when the value can be used, or is a null that says "none".
std::string expected_value(const ConfigKey& key, Producer producer, const Json& value,
                           const KeyPlace& place);

}  // namespace fewbit
