// SPDX-License-Identifier: Apache-2.0
#include "quantize/complete.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace fewbit {
namespace {

// Errors of how a model is run. The weights are what they are all the same.
constexpr std::string_view of_running[] = {"tensor-unexpected", "bias-unsupported",
                                           "activation-gate", "config-top-k",
                                           "config-expert-groups"};

bool refuses(const Finding& finding) {
  return finding.level == Level::error && std::find(std::begin(of_running), std::end(of_running),
                                                    finding.rule) == std::end(of_running);
}

}  // namespace

Result<void> check_complete(const Checkpoint& source, const Identified& identified) {
  std::vector<Finding> findings = identified.findings;
  std::vector<Finding> more = validate(source, identified, Depth::scales);
  std::move(more.begin(), more.end(), std::back_inserter(findings));
  std::erase_if(findings, [](const Finding& finding) { return !refuses(finding); });
  if (findings.empty()) return {};
  const Finding& first = findings.front();
  const ErrorCode code =
      first.rule == "module-unreadable" ? ErrorCode::unsupported : ErrorCode::inconsistent;
  return Error{code,
               fmt::format("{}: found {}, expected {}{}", first.rule, first.found, first.expected,
                           findings.size() == 1
                               ? std::string()
                               : fmt::format(" (and {} more findings)", findings.size() - 1)),
               first.where};
}

}  // namespace fewbit
