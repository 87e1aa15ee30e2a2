// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fewbit/checkpoint.hpp"

namespace fewbit {

// One of several shards, or an adapter: layers, experts and matrices that are not there are
// elsewhere.
bool is_part_of_model(const Checkpoint& checkpoint);

// adapter_config.json that says so (peft_type, base_model_name_or_path …), and tensors of PEFT's
// names or no model's config; or no config at all and nothing but LoRA's tensors.
bool is_adapter(const Checkpoint& checkpoint);

}  // namespace fewbit
