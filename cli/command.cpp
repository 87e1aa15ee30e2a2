// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace fewbit::cli {

void add_json_option(CLI::App& command, CommonOptions& options) {
  command.add_flag("--json", options.json, "Machine-readable output on stdout");
}

void add_threads_option(CLI::App& command, CommonOptions& options) {
  command
      .add_option("--threads", options.threads,
                  "Threads; 0: FEWBIT_THREADS, else what the machine grants")
      ->check(CLI::Range(0, 4096));
}

void print_json(const Json& json) { fmt::print("{}\n", json.dump(2)); }

static void print_error(const Error& error, bool json) {
  std::fflush(stdout);
  fmt::print(stderr, "error: {}\n", error.message());
  if (!json) return;
  Json body;
  body.set("code", error_code_name(error.code));
  body.set("what", error.what);
  body.set("where", error.where);
  Json out;
  out.set("error", body);
  print_json(out);
}

void set_body(CLI::App& command, const CommonOptions& options, int& exit_code, Body body) {
  command.callback([&options, &exit_code, body = std::move(body)] {
    const Result<int> result = body();
    if (result) {
      exit_code = *result;
      return;
    }
    print_error(result.error(), options.json);
    exit_code = exit_failure;
  });
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

Result<DType> parse_activation_dtype(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  if (dtype == DType::bf16 || dtype == DType::f32) return *dtype;
  return Error{ErrorCode::invalid_argument, "'" + name + "' is none of bf16, f32",
               "--activation-dtype"};
}

Result<std::string> read_text_file(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    return Error{ErrorCode::io, "is a directory, expected a text file", path.string()};
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Error{ErrorCode::not_found, "can't be read", path.string()};
  std::ostringstream text;
  text << stream.rdbuf();
  if (stream.bad()) return Error{ErrorCode::io, "reading failed", path.string()};
  return text.str();
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

Json selection_json(const Selection& selection) {
  Json candidates{Json::Array{}};
  for (const Candidate& candidate : selection.candidates) {
    Json refusals{Json::Array{}};
    for (const Refusal& refusal : candidate.refusals) {
      Json entry;
      entry.set("reason", reason_name(refusal.reason));
      entry.set("needs", refusal.needs);
      entry.set("has", refusal.has);
      refusals.push_back(entry);
    }
    Json entry;
    entry.set("backend", candidate.backend);
    entry.set("usable", candidate.refusals.empty());
    entry.set("refusals", refusals);
    candidates.push_back(entry);
  }
  Json out;
  out.set("chosen", selection.chosen);
  out.set("forced", selection.forced);
  out.set("numerics", selection.numerics);
  out.set("candidates", candidates);
  return out;
}

}  // namespace fewbit::cli
