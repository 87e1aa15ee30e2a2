// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scheme/module_rules.hpp"

namespace fewbit {

// A list of a producer's config.
inline ModuleRules rules(Producer producer, const std::vector<std::string>& texts) {
  std::vector<PatternEntry> entries;
  entries.reserve(texts.size());
  for (const std::string& text : texts) entries.push_back({text, "config.json ignore"});
  return {dialect_of(producer), std::move(entries)};
}

}  // namespace fewbit
