// SPDX-License-Identifier: Apache-2.0
#include "scheme/finding_groups.hpp"

#include <fmt/format.h>

namespace fewbit {

void FindingGroups::add(Role role, Finding finding) {
  Group& group = groups_[{finding.rule, role}];
  const bool first = group.count++ == 0;
  if (first || finding.level > group.first.level) group.first = std::move(finding);
}

std::vector<Finding> FindingGroups::take() && {
  std::vector<Finding> findings;
  findings.reserve(groups_.size());
  for (auto& [key, group] : groups_) {
    if (group.count > 1) {
      group.first.where += fmt::format(" and {} more ({})", group.count - 1, role_name(key.second));
    }
    findings.push_back(std::move(group.first));
  }
  return findings;
}

}  // namespace fewbit
