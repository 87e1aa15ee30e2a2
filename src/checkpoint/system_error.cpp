// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system_error.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace fewbit {

namespace {

// What to do about it, where the system's own words do not tell.
std::string advice(int error_number) {
  struct rlimit limit = {};
  if (error_number != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "";
  return fmt::format("; a process may have {} at once here (ulimit -n)", limit.rlim_cur);
}

}  // namespace

Error system_error(std::string_view action, int error_number, const std::filesystem::path& path) {
  const bool missing = error_number == ENOENT || error_number == ENOTDIR;
  return Error{missing ? ErrorCode::not_found : ErrorCode::io,
               fmt::format("cannot {}: {} (errno {}){}", action,
                           std::generic_category().message(error_number), error_number,
                           advice(error_number)),
               path.string()};
}

}  // namespace fewbit
