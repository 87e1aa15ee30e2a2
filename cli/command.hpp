// SPDX-License-Identifier: Apache-2.0
// What every command shares: how results, errors and exit codes leave the tool.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/fewbit.hpp"
#include "printable.hpp"

namespace fewbit::cli {

// 0 fine, 1 findings or failure, 2 usage; exit_stopped: the program ends by the signal itself.
enum ExitCode { exit_fine = 0, exit_failure = 1, exit_usage = 2, exit_stopped = 128 };

// Options that many commands have.
struct CommonOptions {
  bool json = false;
  int threads = 0;
};
void add_json_option(CLI::App& command, CommonOptions& options);
void add_threads_option(CLI::App& command, CommonOptions& options);
// --device cpu|cuda of commands that run layers.
void add_run_device_option(CLI::App& command, std::string& device, const std::string& what);
void add_activation_dtype_option(CLI::App& command, std::string& name);
void add_backend_option(CLI::App& command, std::string& name);

// Runs `body` when the command was chosen; its exit code becomes the tool's. An error is printed on
// stderr as "error: where: what", with --json also as an object on stdout.
using Body = std::function<Result<int>()>;
void set_body(CLI::App& command, const CommonOptions& options, int& exit_code, Body body);

// Text for stdout and stderr. Nothing throws when a stream can't be written: output_failed() tells.
void write_out(std::string_view text);
void write_err(std::string_view text);
// As write_out, with lines that fit the terminal.
void write_page(std::string_view text);
// Every text among the arguments reaches the terminal as printable_line(), Lines as printable().
template <class T>
auto shown(const T& value) {
  if constexpr (std::is_same_v<T, Lines>) {
    return printable(value.text);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return printable_line(value);
  } else {
    return value;
  }
}
template <class T>
using Shown = decltype(shown(std::declval<const T&>()));
template <class... Args>
void print_out(fmt::format_string<Shown<Args>...> format, const Args&... args) {
  const auto print = [&](const auto&... texts) {
    write_page(fmt::vformat(format, fmt::make_format_args(texts...)));
  };
  print(shown(args)...);
}
template <class... Args>
void print_err(fmt::format_string<Shown<Args>...> format, const Args&... args) {
  const auto print = [&](const auto&... texts) {
    write_err(fmt::vformat(format, fmt::make_format_args(texts...)));
  };
  print(shown(args)...);
}
// Flushes stdout; true when any of the output was lost.
bool output_failed();

void print_json(const Json& json);
// {code, what, where}, as every command's "error" is.
Json error_json(const Error& error);
// On stderr, with `json` also as an object on stdout.
void print_error(const Error& error, bool json);
void print_usage_error(std::string_view what, bool json);
// The same for an error that the caller's words or environment made; returns exit_usage.
int usage_error(const Error& error, bool json);
// `where` is a variable of the environment, an option or an argument: its value means nothing.
bool is_usage_error(const Error& error);
// The same error as one of an option ("--tp").
Error as_usage(const Error& error, const char* option);

// "10.3 MB", "1,234 B" (powers of 1000).
std::string bytes_text(std::uint64_t bytes);
std::uint64_t peak_rss_bytes();

extern const CLI::Validator not_empty;
// A number of [low, high]; unlike CLI::Range they tell text from numbers out of range, and refuse
// NaN.
CLI::Validator number_between(double low, double high);
// One of some words, in any case.
CLI::Validator one_of(std::vector<std::string> words);
CLI::Validator whole_number(std::int64_t low, std::int64_t high);
std::vector<std::string> backend_names(std::initializer_list<Engine> engines);
// One of them; its error names the nearest one, not all.
CLI::Validator backend_name(std::vector<std::string> names);
Result<DType> parse_activation_dtype(const std::string& name);
// A checkpoint that a command was given. Errors: as Checkpoint::open; invalid_argument: what it
// names is an unfinished output.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);
Result<void> refuse_unfinished(const std::filesystem::path& path);
// A regular file as a whole: opening a FIFO waits for a writer, devices have no end. Errors
// invalid_argument (another kind of file), limit (more than `largest` bytes), not_found, io.
Result<std::string> read_text_file(const std::filesystem::path& path,
                                   std::size_t largest = std::size_t{1} << 30);
// Of files that hold shapes or timings.
inline constexpr std::size_t largest_list = std::size_t{1} << 24;

Json finding_json(const Finding& finding);
// Numbers or texts.
Json list_json(const auto& values) {
  Json out{Json::Array{}};
  for (const auto& value : values) out.push_back(value);
  return out;
}
Json refusals_json(const std::vector<Refusal>& refusals);
Json selection_json(const Selection& selection);

// Each command's file adds itself.
void add_backends(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_convert(CLI::App& app, int& exit_code);
void add_cpu(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_prepare(CLI::App& app, int& exit_code);
void add_quantize(CLI::App& app, int& exit_code);

}  // namespace fewbit::cli
