// SPDX-License-Identifier: Apache-2.0
// How producers' lists of excluded modules are matched against module names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fewbit {

// Shell wildcards as Python's fnmatch.fnmatchcase: * also matches dots, ? is one character, [ab],
// [a-c] and [!a] are sets; an unclosed [ is itself.
bool glob_match(std::string_view text, std::string_view pattern);

// ModelOpt's exclude list as its loaders apply it: an entry excludes a module when it occurs
// anywhere in the module's name ("model.layers.1" occurs in "model.layers.10.mlp" too), or as a
// wildcard pattern, also without a leading "language_model.". Modules of a vision tower are always
// excluded. Returns the entry that matches; empty when none.
std::string_view modelopt_exclusion(std::string_view module, std::span<const std::string> entries);

}  // namespace fewbit
