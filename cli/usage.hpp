// SPDX-License-Identifier: Apache-2.0
// What a wrong command line is told.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fewbit::cli {

// The first word when it is meant as a command and none is called so: what is wrong with it. Empty
// otherwise.
std::string unknown_command(const CLI::App& app, const std::vector<std::string>& words);

// Of what CLI11 refused: names the first word that it did not know, and what was meant.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error);

// "fewbit check --help": where the right words stand.
std::string help_hint(const CLI::App& app);

}  // namespace fewbit::cli
