// SPDX-License-Identifier: Apache-2.0
// What each layer holds, in names that can be compared with those of other layers.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "fewbit/scheme.hpp"

namespace fewbit {

// By name behind the layer's number, with # for the number of an expert; "… bias" for biases.
using Slots = std::map<std::string, const Module*>;
// By number.
using SlotStack = std::map<int, Slots>;
// By the path before the number: "layers", "talker.model.layers", "blk". Without towers,
// token-prediction heads, tables and scales.
std::map<std::string, SlotStack> slots_of(const Identified& identified);

// Whether a path is that of a language model's own layers: "layers", "transformer.h", "blk".
bool is_main_stack(std::string_view path);

}  // namespace fewbit
