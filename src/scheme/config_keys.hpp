// SPDX-License-Identifier: Apache-2.0
// The keys of quantization blocks and what may stand under each of them.
#pragma once

#include <span>
#include <string_view>

#include "fewbit/scheme.hpp"

namespace fewbit {

enum class ValueKind {
  word,          // a name
  flag,          // true or false
  object,        // with keys of its own
  settings,      // an object whose members are objects of settings, by names of modules
  steps,         // an object, or a list of objects or names
  spec,          // Quark's description of a tensor: an object, or a list of objects
  width,         // bits
  group,         // columns that share a scale
  names,         // a list of names
  nested_names,  // a name, a list of names, or a list of such lists
  words,         // a name, or a list of names
  activation,    // dynamic or static
  integer,
  number,
};

struct ConfigKey {
  std::string_view name;
  ValueKind kind = ValueKind::word;
  Producer producer = Producer::unknown;  // whose key it is; unknown: anybody's
  std::string_view in = {};               // the key of the object that it stands in; empty: any
  bool nullable = false;                  // its writers store null where there is none
  bool aside = false;                     // means nothing to the weights: how they were made
  std::string_view expected = {};         // in place of the kind's own text
};

std::span<const ConfigKey> config_keys();

}  // namespace fewbit
