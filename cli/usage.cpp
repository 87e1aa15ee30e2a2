// SPDX-License-Identifier: Apache-2.0
#include "usage.hpp"

#include <fmt/format.h>

#include "core/nearest.hpp"

namespace fewbit::cli {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  names.emplace_back("help");
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

const CLI::App& chosen_command(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

std::string unexpected(const CLI::App& command, const std::string& word) {
  if (!word.starts_with('-') || word.size() == 1) return "unexpected argument '" + word + "'";
  const std::string name = word.substr(0, word.find('='));
  return "no option " + name + did_you_mean(name, option_names(command));
}

}  // namespace

std::string unknown_command(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty() || words.front().starts_with('-')) return "";
  const std::vector<std::string> names = command_names(app);
  for (const std::string& name : names) {
    if (name == words.front() && name != "help") return "";
  }
  return fmt::format("no command '{}'{}{} known: {}", words.front(),
                     did_you_mean(words.front(), names),
                     nearest(words.front(), names).empty() ? ";" : "", fmt::join(names, ", "));
}

std::string usage_text(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen_command(app);
  const bool no_command = &command == &app;
  const std::vector<std::string> extras = app.remaining(true);
  std::string text;
  if (!extras.empty()) text = unexpected(command, extras.front());
  if (no_command) {
    if (!text.empty()) return text;
    return fmt::format("expected a command: {}", fmt::join(command_names(app), ", "));
  }
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    text = std::string(error.what()) + (text.empty() ? "" : "; " + text);
  }
  return command.get_name() + ": " + text;
}

std::string help_hint(const CLI::App& app) {
  const CLI::App& command = chosen_command(app);
  return &command == &app ? "fewbit --help" : "fewbit " + command.get_name() + " --help";
}

}  // namespace fewbit::cli
