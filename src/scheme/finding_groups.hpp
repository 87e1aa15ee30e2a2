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
  // Same rule and role: counted, and one of the highest level is shown: the worst by `magnitude`
  // where findings have one (a count of bad values, the size of a weight), else the first.
  void add(Role role, Finding finding, double magnitude = 0);
  // In order of rule and role; `where` names the one that is shown and how many more.
  std::vector<Finding> take() &&;

 private:
  struct Group {
    Finding shown;
    double magnitude = 0;
    std::int64_t count = 0;
  };
  std::map<std::pair<std::string, Role>, Group> groups_;
};

}  // namespace fewbit
