// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_kind.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

namespace fewbit {
namespace {

const char* file_kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "no regular file";
}

}  // namespace

Result<void> expect_regular(mode_t mode, const std::filesystem::path& path) {
  if (S_ISREG(mode)) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("expected a regular file, found {}", file_kind(mode)), path.string()};
}

Result<void> expect_regular_file(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return expect_regular(status.st_mode, path);
}

}  // namespace fewbit
