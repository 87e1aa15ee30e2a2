// SPDX-License-Identifier: Apache-2.0
#include "scheme/finding_groups.hpp"

#include <fmt/format.h>

namespace fewbit {

void FindingGroups::add(Role role, Finding finding, double magnitude) {
  Group& group = groups_[{finding.rule, role}];
  const bool first = group.count++ == 0;
  const bool worse = finding.level == group.shown.level ? magnitude > group.magnitude
                                                        : finding.level > group.shown.level;
  if (!first && !worse) return;
  group.shown = std::move(finding);
  group.magnitude = magnitude;
}

std::vector<Finding> FindingGroups::take() && {
  std::vector<Finding> findings;
  findings.reserve(groups_.size());
  for (auto& [key, group] : groups_) {
    if (group.count > 1) {
      group.shown.where += fmt::format(" and {} more ({})", group.count - 1, role_name(key.second));
    }
    findings.push_back(std::move(group.shown));
  }
  return findings;
}

}  // namespace fewbit
