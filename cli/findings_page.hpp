// SPDX-License-Identifier: Apache-2.0
// Findings on the page of `check`, and what they come to.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "command.hpp"

namespace fewbit::cli {

std::string findings_text(std::span<const Finding> findings, bool headers_only);

// "fine, 1 note"; "2 errors, 1 warning: do not run it as it is".
std::string result_text(std::span<const Finding> findings);
// {fine, errors, warnings, notes}
Json result_json(std::span<const Finding> findings);
// Of what was made from a source with warnings; empty without any. made: "was made of".
std::string source_warnings_text(std::span<const Finding> warnings, std::string_view made);
Json findings_json(std::span<const Finding> findings);
// FEWBIT_BACKEND forces one that can't run the experts, which is no fault of the files.
Finding forced_refusal(const std::string& found);
// A warning or an error: exit code 1.
bool has_problem(std::span<const Finding> findings);

}  // namespace fewbit::cli
