// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/target_path.hpp"

#include <system_error>

#include "core/quote.hpp"

namespace fewbit {

Result<std::filesystem::path> target_path(const std::filesystem::path& folder) {
  std::filesystem::path target = folder.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  const std::string name = target.filename().string();
  if (name.empty() || name == "." || name == "..") {
    return Error{ErrorCode::invalid_argument, "expected the name of a new folder", folder.string()};
  }
  if (!target.has_parent_path()) target = std::filesystem::path(".") / target;
  std::error_code ignored;
  if (std::filesystem::status(target.parent_path(), ignored).type() ==
      std::filesystem::file_type::not_found) {
    return Error{ErrorCode::not_found,
                 "no such folder to write " + quote(name) + " in; create it first",
                 target.parent_path().string()};
  }
  return target;
}

}  // namespace fewbit
