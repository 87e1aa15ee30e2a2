// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "fewbit/checkpoint.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit {

// One of several shards, or an adapter: layers, experts and matrices that are not there are
// elsewhere.
bool is_part_of_model(const Checkpoint& checkpoint);

// adapter_config.json that says so (peft_type, base_model_name_or_path …), and tensors of PEFT's
// names or no model's config; or no config at all and nothing but LoRA's tensors.
bool is_adapter(const Checkpoint& checkpoint);

// One of several shards.
bool is_shard(const Checkpoint& checkpoint);

// Codes without scales or zero points, or those without codes: the rest may be in another shard.
bool lacks_parts(const Module& module);

// Of a shard named alone: what its modules lack may be in another shard, so it is information.
void soften_findings_of_a_shard(const Checkpoint& checkpoint, std::vector<Finding>& findings);

}  // namespace fewbit
