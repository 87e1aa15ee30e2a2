// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>

#include "checkpoint/file_kind.hpp"
#include "checkpoint/leftovers.hpp"
#include "core/ascii.hpp"
#include "core/nearest.hpp"
#include "core/quote.hpp"
#include "core/thread_variable.hpp"
#include "progress.hpp"
#include "select/select.hpp"
#include "terminal.hpp"

namespace fewbit::cli {

void add_json_option(CLI::App& command, CommonOptions& options) {
  command.add_flag("--json", options.json, "Machine-readable output on stdout");
}

void add_threads_option(CLI::App& command, CommonOptions& options) {
  command
      .add_option("--threads", options.threads,
                  "Threads; 0: FEWBIT_THREADS, else what the machine grants")
      ->check(whole_number(0, 1024));
}

void add_run_device_option(CLI::App& command, std::string& device, const std::string& what) {
  command.add_option("--device", device, what + ": cpu (default) or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
}

void add_activation_dtype_option(CLI::App& command, std::string& name) {
  command.add_option("--activation-dtype", name, "bf16 (default), or f32 for exact comparison")
      ->transform(one_of({"bf16", "f32"}));
}

std::vector<std::string> backend_names(std::initializer_list<Engine> engines) {
  std::vector<std::string> names;
  for (const Engine engine : engines) {
    for (const BackendDescription& backend : list_backends(DeviceInfo{}, engine)) {
      names.push_back(backend.name);
    }
  }
  return names;
}

CLI::Validator backend_name(std::vector<std::string> names) {
  return CLI::Validator(
      [names = std::move(names)](std::string& text) -> std::string {
        if (const std::string name = lower_ascii(text);
            std::ranges::find(names, name) != names.end()) {
          text = name;
          return "";
        }
        // As FEWBIT_BACKEND is refused.
        const Error unknown = unknown_backend(Engine::fewbit, lower_ascii(text), "");
        if (names == backend_names({Engine::fewbit})) return unknown.what;
        const std::string near = did_you_mean(text, names);
        return near.empty()
                   ? unknown.what + "; `fewbit backends --foreign` lists those of other engines"
                   : "unknown backend " + quote(text) + near;
      },
      "NAME");
}

void add_backend_option(CLI::App& command, std::string& name) {
  std::vector<std::string> names = backend_names({Engine::fewbit});
  command
      .add_option("--backend", name,
                  "Force the experts' backend (`fewbit backends` lists them): used or refused")
      ->transform(backend_name(std::move(names)));
}

void write_out(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }
void write_err(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }
void write_page(std::string_view text) {
  const int columns = output_columns();
  write_out(columns > 0 ? wrapped_page(text, columns) : text);
}
bool output_failed() { return std::fflush(stdout) != 0 || std::ferror(stdout) != 0; }

void print_json(const Json& json) { write_out(printable_json(json.dump(2)) + "\n"); }

static Json error_body(const char* code, const std::string& what, const std::string& where) {
  Json body;
  body.set("code", code);
  body.set("what", what);
  body.set("where", where);
  return body;
}

Json error_json(const Error& error) {
  return is_usage_error(error) ? error_body("usage", error.message(), "command line")
                               : error_body(error_code_name(error.code), error.what, error.where);
}

static void print_error_json(const Json& body) {
  Json out;
  out.set("error", body);
  print_json(out);
}

// An error is as long as what it names.
static void write_error(const Error& error) {
  const std::string text = "error: " + printable_message(error.message()) + "\n";
  write_err(wrapped_page(text, error_columns()));
}

void print_error(const Error& error, bool json) {
  write_error(error);
  if (json) print_error_json(error_body(error_code_name(error.code), error.what, error.where));
}

void print_usage_error(std::string_view what, bool json) {
  if (json) print_error_json(error_body("usage", std::string(what), "command line"));
}

int usage_error(const Error& error, bool json) {
  write_error(error);
  print_usage_error(error.message(), json);
  return exit_usage;
}

bool is_usage_error(const Error& error) {
  return error.where.starts_with("FEWBIT_") || error.where.starts_with("--") ||
         error.where == "NAME";
}

Error as_usage(const Error& error, const char* option) {
  return Error{ErrorCode::invalid_argument, error.message(), option};
}

// The library speaks of fields, people of options.
static Error told_by_options(Error error) {
  constexpr std::pair<std::string_view, std::string_view> words[] = {
      {"allow_erased takes it", "--allow-erased takes it"},
      {"(restart drops it)", "(--restart drops it)"},
  };
  for (const auto& [field, option] : words) {
    const std::size_t at = error.what.find(field);
    if (at != std::string::npos) error.what.replace(at, field.size(), option);
  }
  return error;
}

// What a wrong variable asks for is not done, whether the command needs it or not.
static Result<void> check_environment() {
  FEWBIT_TRY(detect_cpu());
  FEWBIT_TRY(threads_by_variable());
  return check_backend_variable();
}

void set_body(CLI::App& command, const CommonOptions& options, int& exit_code, Body body) {
  command.callback([&options, &exit_code, body = std::move(body)] {
    const auto environment = check_environment();
    const Result<int> result = environment ? body() : Result<int>(environment.error());
    if (result) {
      exit_code = *result;
      return;
    }
    std::fflush(stdout);
    const Error error = told_by_options(result.error());
    if (error.code == ErrorCode::cancelled) {
      exit_code = exit_stopped;
      print_error(told_by_signal(error), options.json);
      return;
    }
    if (is_usage_error(error)) {
      exit_code = usage_error(error, options.json);
      return;
    }
    print_error(error, options.json);
    exit_code = exit_failure;
  });
}

Result<void> refuse_unfinished(const std::filesystem::path& path) {
  // Named itself, or by one of its files.
  for (const std::filesystem::path& folder : {path, path.parent_path()}) {
    if (folder.empty() || !is_unfinished(folder)) continue;
    return Error{ErrorCode::invalid_argument,
                 "an unfinished output of fewbit, of a run that was stopped or is still at work: "
                 "the same command as before completes it, and it then has its own name",
                 folder.string()};
  }
  return {};
}

Result<Checkpoint> open_checkpoint(const std::filesystem::path& path) {
  FEWBIT_TRY(refuse_unfinished(path));
  return Checkpoint::open(path);
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000.0 && unit + 1 < std::size(units)) {
    value /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

const CLI::Validator not_empty(
    [](const std::string& text) { return text.empty() ? "empty, expected some text" : ""; }, "");

CLI::Validator number_between(double low, double high) {
  const bool open = high >= std::numeric_limits<float>::max();
  const std::string range =
      open ? fmt::format("{:g} or more", low) : fmt::format("{:g} to {:g}", low, high);
  return CLI::Validator(
      [low, high, range](const std::string& text) -> std::string {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool number = error == std::errc{} && end == text.data() + text.size();
        if (!number) return "'" + text + "' is no number, expected " + range;
        return value >= low && value <= high ? "" : text + " is out of range, expected " + range;
      },
      range);
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string known = fmt::format("{}", fmt::join(words, ", "));
  CLI::Validator validator(
      [words = std::move(words), known](std::string& text) -> std::string {
        const std::string word = lower_ascii(text);
        if (std::ranges::find(words, word) == words.end()) {
          return fmt::format("'{}' is none of {}{}", text, known, did_you_mean(text, words));
        }
        text = word;
        return "";
      },
      fmt::format("{{{}}}", known));
  return validator;
}

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const std::string range = fmt::format("{} to {}", low, high);
  return CLI::Validator(
      [low, high, range](const std::string& text) -> std::string {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool number =
            error != std::errc::invalid_argument && end == text.data() + text.size();
        if (!number) return "'" + text + "' is no whole number, expected " + range;
        const bool fits = error == std::errc{} && value >= low && value <= high;
        return fits ? "" : text + " is out of range, expected " + range;
      },
      range);
}

Result<DType> parse_activation_dtype(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  if (dtype == DType::bf16 || dtype == DType::f32) return *dtype;
  return Error{ErrorCode::invalid_argument, "'" + name + "' is none of bf16, f32",
               "--activation-dtype"};
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t largest) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  const auto failed = [&](int number) {
    return Error{number == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                 std::string("can't be read: ") + std::strerror(number), path.string()};
  };
  FEWBIT_TRY(expect_regular_file(path));
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return failed(errno);
  std::string text;
  std::size_t got = piece;
  while (got == piece && text.size() <= largest) {
    text.resize(text.size() + piece);
    got = std::fread(text.data() + text.size() - piece, 1, piece, file);
    text.resize(text.size() - piece + got);
  }
  const int number = std::ferror(file) != 0 ? errno : 0;
  std::fclose(file);
  if (number != 0) return failed(number);
  if (text.size() > largest) {
    return Error{ErrorCode::limit, fmt::format("has more than {} bytes", largest), path.string()};
  }
  return text;
}

Json finding_json(const Finding& finding) {
  Json out;
  out.set("level", level_name(finding.level));
  out.set("rule", finding.rule);
  out.set("where", finding.where);
  out.set("found", finding.found);
  out.set("expected", finding.expected);
  return out;
}

Json refusals_json(const std::vector<Refusal>& refusals) {
  Json list{Json::Array{}};
  for (const Refusal& refusal : refusals) {
    Json entry;
    entry.set("reason", reason_name(refusal.reason));
    entry.set("needs", refusal.needs);
    entry.set("has", refusal.has);
    list.push_back(entry);
  }
  return list;
}

Json selection_json(const Selection& selection) {
  Json candidates{Json::Array{}};
  for (const Candidate& candidate : selection.candidates) {
    Json entry;
    entry.set("backend", candidate.backend);
    entry.set("usable", candidate.refusals.empty());
    entry.set("refusals", refusals_json(candidate.refusals));
    if (!candidate.only_forced.empty()) entry.set("only_forced", candidate.only_forced);
    if (!candidate.unbuilt.empty()) entry.set("unbuilt", candidate.unbuilt);
    entry.set("preparable", candidate.refusals.empty() && candidate.unprepared.empty());
    if (!candidate.unprepared.empty()) entry.set("unprepared", candidate.unprepared);
    candidates.push_back(entry);
  }
  Json out;
  out.set("engine", engine_name(selection.engine));
  out.set("runs_here", selection.engine == Engine::fewbit);
  out.set("chosen", selection.chosen);
  out.set("forced", selection.forced);
  out.set("numerics", selection.numerics);
  out.set("candidates", candidates);
  return out;
}

}  // namespace fewbit::cli
