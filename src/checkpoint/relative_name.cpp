// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/relative_name.hpp"

#include <algorithm>
#include <filesystem>

namespace fewbit {

bool stays_below(std::string_view name) {
  if (name.empty() || name.find('\0') != std::string_view::npos) return false;
  const std::filesystem::path path(name);
  return path.is_relative() && path.has_filename() &&
         std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
}

}  // namespace fewbit
