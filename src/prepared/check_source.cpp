// SPDX-License-Identifier: Apache-2.0
#include "prepared/check_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "scheme/source_errors.hpp"

namespace fewbit {
namespace {

constexpr std::size_t most_shown = 4;

std::string text_of(const Finding& finding) {
  const std::string expected =
      finding.expected.empty() ? "" : fmt::format("; expected {}", finding.expected);
  return fmt::format("\n  {}  {}: found {}{}", finding.rule, finding.where, finding.found,
                     expected);
}

}  // namespace

Result<std::vector<Finding>> check_source(const Checkpoint& source, const Identified& identified,
                                          const ProgressFn& progress) {
  FEWBIT_TRY(const std::vector<Finding> all, source_findings(source, identified, progress));
  const std::vector<Finding> errors = errors_of(all);
  if (errors.empty()) return problems_of(all);
  std::string text =
      fmt::format("{} error{} in the source:", errors.size(), errors.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < std::min(errors.size(), most_shown); ++i) {
    text += text_of(errors[i]);
  }
  if (errors.size() > most_shown) {
    text += fmt::format("\n  and {} more: fewbit check", errors.size() - most_shown);
  }
  return Error{ErrorCode::inconsistent, std::move(text), source.directory().string()};
}

}  // namespace fewbit
