// SPDX-License-Identifier: Apache-2.0
// Text that a name must contain for a pattern to match it: most patterns are never tried.
#pragma once

#include <string>
#include <string_view>

#include "scheme/module_match.hpp"

namespace fewbit {

// The longest such text that is easily seen; empty when there is none. Of a regular expression: of
// its own parts and of its groups that are neither repeated nor alternatives.
std::string required_literal(PatternKind kind, std::string_view text);

}  // namespace fewbit
