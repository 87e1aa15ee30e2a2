// SPDX-License-Identifier: Apache-2.0
#include "quantize/complete.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fewbit {

Result<void> check_complete(const Checkpoint& source, const Identified& identified) {
  constexpr std::array<std::string_view, 8> rules = {
      "tensor-missing", "tensor-shape", "experts-missing", "layers-missing",
      "layers-extra",   "config-size",  "config-experts",  "scale-without-weight"};
  std::vector<Finding> findings = validate(source, identified, Depth::headers);
  std::erase_if(findings, [&](const Finding& finding) {
    return finding.level != Level::error ||
           std::find(rules.begin(), rules.end(), finding.rule) == rules.end();
  });
  if (findings.empty()) return {};
  const Finding& first = findings.front();
  return Error{ErrorCode::inconsistent,
               fmt::format("{}: found {}, expected {}{}", first.rule, first.found, first.expected,
                           findings.size() == 1
                               ? std::string()
                               : fmt::format(" (and {} more findings)", findings.size() - 1)),
               first.where};
}

}  // namespace fewbit
