// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace fewbit {

Error system_error(std::string_view action, int error_number, const std::filesystem::path& path) {
  const bool missing = error_number == ENOENT || error_number == ENOTDIR;
  return Error{missing ? ErrorCode::not_found : ErrorCode::io,
               fmt::format("cannot {}: {} (errno {})", action,
                           std::generic_category().message(error_number), error_number),
               path.string()};
}

}  // namespace fewbit
