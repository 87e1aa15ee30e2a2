// SPDX-License-Identifier: Apache-2.0
// Findings of a kind gathered into one line: a checkpoint may hold 60,000 modules.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fewbit/scheme.hpp"

namespace fewbit {

class FindingGroups {
 public:
  // Same rule and role: counted, the first one of the highest level is shown.
  void add(Role role, Finding finding);
  // In order of rule and role; `where` names the first and how many more.
  std::vector<Finding> take() &&;

 private:
  struct Group {
    Finding first;
    std::int64_t count = 0;
  };
  std::map<std::pair<std::string, Role>, Group> groups_;
};

}  // namespace fewbit
