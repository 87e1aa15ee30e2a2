// SPDX-License-Identifier: Apache-2.0
// The act-order of GPTQ-like modules, by what g_idx holds and not by what a config says of it.
#pragma once

#include <vector>

#include "scheme/reader.hpp"

namespace fewbit {

// g_idx of a module that can be read: i32 [k]; nullptr: it has none.
const TensorInfo* group_index_of(const Checkpoint& checkpoint, const Module& module);
// Whether the columns stand in groups that are no runs. Reads g_idx.
bool is_permuted(const Checkpoint& checkpoint, const Module& module);

// Sets Scheme::act_order of every module with a g_idx: `group` where its columns are in another
// order, where the config says so, and for experts beside such ones in the layer, which are
// multiplied by the same kernel; never where one group holds all columns.
void read_group_orders(const Checkpoint& checkpoint, const std::vector<Module*>& modules);
void read_group_orders(const Checkpoint& checkpoint, std::vector<Module>& modules);

// Findings where the config and g_idx disagree; with `headers` where they may.
void check_group_orders(Inventory& inventory, Depth depth);

}  // namespace fewbit
