// SPDX-License-Identifier: Apache-2.0
// The layer, machine, engine and spread that explain and check are asked about.
#pragma once

#include "command.hpp"
#include "select/problem_list.hpp"

namespace fewbit::cli {

struct DeviceOption {
  std::string text = "cpu";
};
void add_device_option(CLI::App& command, DeviceOption& option);

void add_exchange_option(CLI::App& command, std::string& exchange);

struct SpreadOptions {
  std::string engine;  // empty: fewbit, of a prepared model that of its backend
  std::string exchange = "none";
  int tensor = 1;
  int expert = 1;

  Result<Engine> engine_asked() const {
    return engine_from_name(engine.empty() ? "fewbit" : engine);
  }
  Result<Parallel> parallel() const;
};
void add_spread_options(CLI::App& command, SpreadOptions& options);

// An error of ranks that a layer can't be dealt to is one of the option that asked for them.
Error ranks_by_option(const Error& error);

// --backend, of any engine.
void add_any_backend_option(CLI::App& command, std::string& name);

// A named layer of the tool's own list, or of a file like tests/problems/models.txt.
struct ProblemOptions {
  std::string name;
  std::string file;
};
void add_problem_options(CLI::App& command, ProblemOptions& options);
// "Layers for --problem" with the schemes of each, one model a line.
Result<std::string> problem_names(const ProblemOptions& options);
// Error invalid_argument, where --problem: the known names.
Result<MoeProblem> named_problem(const ProblemOptions& options, DType activation_dtype);

// Shape and schemes of a layer.
Json problem_json(const MoeProblem& problem);

}  // namespace fewbit::cli
