// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/leftovers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string>
#include <string_view>

#include "checkpoint/system_error.hpp"
#include "core/ascii.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view mark = ".partial.";

bool is_gone(std::string_view number) {
  pid_t process = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), process);
  const bool whole = error == std::errc{} && end == number.data() + number.size();
  return whole && process > 0 && ::kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace

fs::path partial_folder(const fs::path& target) {
  return fmt::format("{}{}{}", target.string(), mark, ::getpid());
}

FileDescriptor lock_folder(const fs::path& folder) {
  FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  return FileDescriptor();
}

Result<void> mark_unfinished(const fs::path& folder) {
  const fs::path path = folder / unfinished_name;
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() < 0) return system_error("create", errno, path);
  return {};
}

bool is_unfinished(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(folder / unfinished_name, ignored));
}

Result<void> unmark_unfinished(const fs::path& folder) {
  std::error_code failure;
  fs::remove(folder / unfinished_name, failure);
  if (failure) return system_error("remove", failure.value(), folder / unfinished_name);
  return {};
}

std::vector<fs::path> leftover_files(const fs::path& target) {
  constexpr std::string_view ending = ".gguf";
  std::vector<fs::path> found;
  if (lower_ascii(target.extension().string()) != ending) return found;
  const std::string stem = target.stem().string();
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  std::error_code failure;
  for (fs::directory_iterator at(parent, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    const std::size_t cut = name.rfind(mark);
    if (cut == std::string::npos || !is_gone(std::string_view(name).substr(cut + mark.size()))) {
      continue;
    }
    // One file, or "stem-00001-of-00002.gguf".
    const fs::path file = name.substr(0, cut);
    if (lower_ascii(file.extension().string()) != ending) continue;
    const std::string of = file.stem().string();
    const bool ours =
        of == stem || (of.starts_with(stem + "-") && of.find("-of-") != std::string::npos);
    std::error_code ignored;
    if (ours && fs::is_regular_file(at->symlink_status(ignored))) found.push_back(at->path());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<fs::path> remove_leftovers(const fs::path& target) {
  const fs::path clean = target.has_filename() ? target : target.parent_path();
  const std::string prefix = clean.filename().string() + std::string(mark);
  const fs::path parent = clean.has_parent_path() ? clean.parent_path() : fs::path(".");
  std::vector<fs::path> removed;
  std::error_code failure;
  for (fs::directory_iterator at(parent, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix) || !is_gone(std::string_view(name).substr(prefix.size()))) {
      continue;
    }
    std::error_code ignored;
    // A process may die between making its folder and marking it.
    if (!is_unfinished(at->path()) && !fs::is_empty(at->path(), ignored)) continue;
    const FileDescriptor lock = lock_folder(at->path());
    if (lock.get() >= 0 && fs::remove_all(at->path(), ignored) > 0 && !ignored) {
      removed.push_back(at->path());
    }
  }
  return removed;
}

}  // namespace fewbit
