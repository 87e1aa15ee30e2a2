// SPDX-License-Identifier: Apache-2.0
#include "findings_page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/counted.hpp"

namespace fewbit::cli {
namespace {

std::int64_t count(std::span<const Finding> findings, Level level) {
  return std::ranges::count(findings, level, &Finding::level);
}

// Where nothing else is expected, the rest says why it is as it is.
std::string finding_text(const Finding& finding) {
  constexpr std::string_view no_other = "nothing: ";
  if (finding.expected.empty()) return finding.found;
  if (finding.expected.starts_with(no_other)) {
    return finding.found + "; " + finding.expected.substr(no_other.size());
  }
  return "found " + finding.found + "; expected " + finding.expected;
}

// "fine, 1 note", "2 errors, 1 warning".
std::string counts_text(std::string text, std::span<const Finding> findings) {
  const auto add = [&](std::string_view one, Level level) {
    const std::int64_t found = count(findings, level);
    if (found > 0) text += (text.empty() ? "" : ", ") + counted(found, one);
  };
  add("error", Level::error);
  add("warning", Level::warning);
  add("note", Level::info);
  return text;
}

std::string lines_of(std::span<const Finding> findings) {
  std::string text;
  for (const Finding& f : findings) {
    text +=
        fmt::format("  {:<7} {}  {}\n          {}\n", level_name(f.level), printable_line(f.rule),
                    printable_line(f.where), printable_line(finding_text(f)));
  }
  return text;
}

}  // namespace

std::string findings_text(std::span<const Finding> findings, bool headers_only) {
  const char* depth = headers_only ? " (of headers only; scales were not read)" : "";
  if (findings.empty()) return fmt::format("findings: none{}\n\n", depth);
  return fmt::format("findings{}\n{}\n", depth, lines_of(findings));
}

std::string result_text(std::span<const Finding> findings) {
  const std::string text = counts_text(has_problem(findings) ? "" : "fine", findings);
  if (count(findings, Level::error) > 0) return text + ": do not run it as it is";
  return has_problem(findings) ? text + ": look into it before you run it" : text;
}

Json result_json(std::span<const Finding> findings) {
  Json out;
  out.set("fine", !has_problem(findings));
  out.set("errors", count(findings, Level::error));
  out.set("warnings", count(findings, Level::warning));
  out.set("notes", count(findings, Level::info));
  return out;
}

std::string source_warnings_text(std::span<const Finding> warnings, std::string_view made) {
  if (warnings.empty()) return "";
  return fmt::format("the source has {}, which stand in what {} it:\n{}", counts_text("", warnings),
                     made, lines_of(warnings));
}

Json findings_json(std::span<const Finding> findings) {
  Json list{Json::Array{}};
  for (const Finding& finding : findings) list.push_back(finding_json(finding));
  return list;
}

Finding forced_refusal(const std::string& found) {
  return {Level::info, "layer-not-runnable", "FEWBIT_BACKEND", found,
          "a backend that can run the experts, or none forced"};
}

bool has_problem(std::span<const Finding> findings) {
  return std::ranges::any_of(findings, [](const Finding& f) { return f.level != Level::info; });
}

}  // namespace fewbit::cli
