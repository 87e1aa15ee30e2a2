// SPDX-License-Identifier: Apache-2.0
// fewbit: the command-line tool.
#include <clocale>

#include "command.hpp"

int main(int argc, char** argv) {
  using namespace fewbit::cli;
  CLI::App app{
      "fewbit reads, checks, quantizes and runs low-bit checkpoints of Mixture-of-Experts language "
      "models.\nExit codes: 0 fine, 1 findings or failure, 2 usage.",
      "fewbit"};
  app.set_version_flag("--version", "fewbit " FEWBIT_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Each command has its own --help with examples. Environment: FEWBIT_ISA, "
      "FEWBIT_BACKEND, FEWBIT_THREADS, FEWBIT_LOG.");
  int exit_code = exit_fine;
  add_check(app, exit_code);
  add_inspect(app, exit_code);
  add_explain(app, exit_code);
  add_quantize(app, exit_code);
  add_convert(app, exit_code);
  add_eval(app, exit_code);
  add_generate(app, exit_code);
  add_bench(app, exit_code);
  add_cpu(app, exit_code);
  add_backends(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? exit_fine : exit_usage;
  }
  return exit_code;
}
