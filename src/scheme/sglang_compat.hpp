// SPDX-License-Identifier: Apache-2.0
// fewbit/sglang.hpp on parsed JSON.
#pragma once

#include "checkpoint/json.hpp"
#include "fewbit/sglang.hpp"

namespace fewbit::sglang {

Result<Json> get_dynamic_override(const Json::Object& dynamic, std::string_view name,
                                  std::optional<std::string_view> key, Json fallback);

}  // namespace fewbit::sglang
