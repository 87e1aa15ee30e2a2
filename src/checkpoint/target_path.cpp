// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/target_path.hpp"

namespace fewbit {

Result<std::filesystem::path> target_path(const std::filesystem::path& folder) {
  std::filesystem::path target = folder.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  const std::string name = target.filename().string();
  if (name.empty() || name == "." || name == "..") {
    return Error{ErrorCode::invalid_argument, "expected the name of a new folder", folder.string()};
  }
  if (!target.has_parent_path()) target = std::filesystem::path(".") / target;
  return target;
}

}  // namespace fewbit
