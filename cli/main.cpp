// SPDX-License-Identifier: Apache-2.0
// fewbit: the command-line tool.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/mapped_file.hpp"
#include "command.hpp"
#include "printable.hpp"
#include "progress.hpp"
#include "usage.hpp"

namespace fewbit::cli {
namespace {

// In a signal handler: nothing but write().
void say(std::string_view text) {
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
}

// A mapped file that becomes shorter while it is read ends in this signal.
void report_bus_error(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const char* path = MappedFile::path_at(info->si_addr);
  say("error: ");
  // Bytes that a terminal would act on are shown as "?".
  for (const char* at = path; at != nullptr && *at != '\0'; ++at) {
    const auto byte = static_cast<unsigned char>(*at);
    say(byte < 0x20 || byte > 0x7E ? std::string_view("?") : std::string_view(at, 1));
  }
  say(path != nullptr ? ": could not be read any more; was it changed or truncated meanwhile?\n"
                      : "a mapped file could not be read any more; was it changed or truncated "
                        "meanwhile?\n");
  _exit(exit_failure);
}

void prepare_signals() {
  struct sigaction action = {};
  action.sa_sigaction = report_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
  // Writing past a file size limit becomes an ordinary error.
  std::signal(SIGXFSZ, SIG_IGN);
}

void add_commands(CLI::App& app, int& exit_code) {
  add_check(app, exit_code);
  add_inspect(app, exit_code);
  add_explain(app, exit_code);
  add_quantize(app, exit_code);
  add_convert(app, exit_code);
  add_prepare(app, exit_code);
  add_eval(app, exit_code);
  add_generate(app, exit_code);
  add_bench(app, exit_code);
  add_cpu(app, exit_code);
  add_backends(app, exit_code);
}

// `fewbit help [COMMAND]`: the words of --help.
std::vector<std::string> help_words(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.push_back("--help");
  return words;
}

int refuse(const std::string& what, bool json) {
  print_err("error: {}\n", what);
  print_usage_error(what, json);
  return exit_usage;
}

int run(int argc, char** argv, bool json) {
  CLI::App app{
      "fewbit reads, checks, quantizes and runs low-bit checkpoints of Mixture-of-Experts language "
      "models.\nExit codes: 0 fine, 1 findings or failure, 2 usage; stopped by a signal: that "
      "signal.",
      "fewbit"};
  app.set_version_flag("--version", "fewbit " FEWBIT_VERSION);
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  app.footer(
      "Each command has its own --help (or `fewbit help COMMAND`) with examples. Environment: "
      "FEWBIT_ISA, FEWBIT_BACKEND, "
      "FEWBIT_THREADS.");
  int exit_code = exit_fine;
  add_commands(app, exit_code);
  std::vector<std::string> words = help_words(argc, argv);
  if (const std::string wrong = unknown_command(app, words); !wrong.empty()) {
    return refuse(wrong, json);
  }
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    if (app.exit(error, out, err) == 0) {
      print_out("{}", Lines{out.str()});
      return exit_fine;
    }
    const int code = refuse(usage_text(app, error), json);
    print_err("`{}` lists what is known\n", help_hint(app));
    return code;
  }
  return exit_code;
}

}  // namespace
}  // namespace fewbit::cli

int main(int argc, char** argv) {
  using namespace fewbit::cli;
  prepare_signals();
  const bool json = std::any_of(
      argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
  int exit_code = exit_failure;
  try {
    exit_code = run(argc, argv, json);
  } catch (const std::exception& error) {
    // Memory ran out, most likely: the library itself does not throw.
    print_error({fewbit::ErrorCode::limit, error.what(), "fewbit"}, json);
  }
  if (output_failed()) {
    write_err("error: the output could not be written\n");
    return exit_failure;
  }
  if (exit_code == exit_stopped) end_by_signal();
  return exit_code;
}
