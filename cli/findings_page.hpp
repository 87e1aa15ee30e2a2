// SPDX-License-Identifier: Apache-2.0
// Findings on the page of `check`, and what they come to.
#pragma once

#include <span>
#include <string>

#include "command.hpp"

namespace fewbit::cli {

std::string findings_text(std::span<const Finding> findings, bool headers_only);

// "fine, 1 note"; "2 errors, 1 warning: do not run it as it is".
std::string result_text(std::span<const Finding> findings);
// {fine, errors, warnings, notes}
Json result_json(std::span<const Finding> findings);
// A warning or an error: exit code 1.
bool has_problem(std::span<const Finding> findings);

}  // namespace fewbit::cli
