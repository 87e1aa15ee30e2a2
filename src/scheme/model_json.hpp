// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/json.hpp"
#include "fewbit/checkpoint.hpp"

namespace fewbit {

inline constexpr std::string_view params_file = "params.json";

// What the file that params.json was read from calls this key of config.json: "n_layers",
// "moe.num_experts". Empty when it has no other name, or `params` has the usual one too.
std::string native_key(const Json& params, std::string_view usual);

// The file that describes the model: config.json, or, where there is none, params.json of Mistral's
// own releases with its keys under the names of config.json beside them.
struct ModelJson {
  std::shared_ptr<const Json> root;  // nullptr when neither exists
  std::string name = "config.json";
};
Result<ModelJson> read_model_json(const Checkpoint& checkpoint);

// The config of gpt-oss's `original` folder: no model_type, and nothing of its MXFP4.
bool is_original_gpt_oss(const Json& config);

}  // namespace fewbit
