// SPDX-License-Identifier: Apache-2.0
#include "prepared/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "checkpoint/json.hpp"
#include "checkpoint/mapped_file.hpp"
#include "checkpoint/system_error.hpp"
#include "core/quote.hpp"
#include "core/text_file.hpp"

namespace fewbit {
namespace {

constexpr std::string_view format_name = "fewbit-prepare-journal-2";

// Whether the open file is still the one with this name: a run that finishes removes it.
bool is_current(int file, const std::filesystem::path& path) {
  struct stat of_file = {};
  struct stat of_path = {};
  return ::fstat(file, &of_file) == 0 && ::stat(path.c_str(), &of_path) == 0 &&
         of_file.st_ino == of_path.st_ino && of_file.st_dev == of_path.st_dev;
}

Result<JobIdentity> parse_identity(std::string_view line, const std::string& where) {
  FEWBIT_TRY(const Json json, Json::parse(line, where));
  const Json* format = json.find("format");
  const std::string* name = format != nullptr ? format->as_string() : nullptr;
  const Json* job = json.find("job");
  if (name == nullptr || *name != format_name || job == nullptr || !job->is_object()) {
    return Error{ErrorCode::corrupt, fmt::format("expected a journal ({})", format_name), where};
  }
  JobIdentity identity;
  for (const auto& [key, value] : *job->as_object()) {
    const std::string* text = value.as_string();
    if (text == nullptr) {
      return Error{ErrorCode::corrupt, fmt::format("{}: expected a string", quote(key)), where};
    }
    identity.emplace_back(key, *text);
  }
  return identity;
}

// "7 0123456789abcdef"
std::optional<FinishedTask> parse_finished(std::string_view words) {
  constexpr std::size_t digits = 16;
  const std::size_t space = words.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto task = parse_number<std::int64_t>(words.substr(0, space));
  const std::string_view hex = words.substr(space + 1);
  std::uint64_t hash = 0;
  const auto [end, failure] = std::from_chars(hex.data(), hex.data() + hex.size(), hash, 16);
  const bool whole = failure == std::errc() && end == hex.data() + hex.size();
  if (!task || *task < 0 || hex.size() != digits || !whole) return std::nullopt;
  return FinishedTask{.task = *task, .hash = hash};
}

const std::string* find_fact(const JobIdentity& identity, const std::string& key) {
  const auto at = std::ranges::find(identity, key, &std::pair<std::string, std::string>::first);
  return at == identity.end() ? nullptr : &at->second;
}

}  // namespace

Result<Journal> Journal::open(const std::filesystem::path& path) {
  while (true) {
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (file.get() < 0) return system_error("create", errno, path);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return system_error("lock", errno, path);
      return Error{ErrorCode::io, "another run is at work on this output: its journal is locked",
                   path.string()};
    }
    if (is_current(file.get(), path)) return Journal(path, std::move(file));
  }
}

Result<Journal::Content> Journal::read() const {
  FEWBIT_TRY(const auto file, MappedFile::open(path_));
  std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  Content content;
  for (std::size_t line = 1;; ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return content;
    const std::string_view words = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == 1) {
      FEWBIT_TRY(content.identity, parse_identity(words, path_.string()));
      content.begun = true;
      continue;
    }
    const auto finished = parse_finished(words);
    if (!finished) {
      return Error{ErrorCode::corrupt,
                   fmt::format("line {}: expected the number of a task and 16 hex digits, found {}",
                               line, quote(words)),
                   path_.string()};
    }
    content.done.push_back(*finished);
  }
}

bool Journal::is_foreign() const {
  constexpr std::string_view beginning = R"({"format":"fewbit-prepare-journal-)";
  const auto file = MappedFile::open(path_);
  if (!file) return false;
  const auto bytes = (*file)->bytes();
  std::string text(reinterpret_cast<const char*>(bytes.data()),
                   std::min(bytes.size(), 2 * beginning.size()));
  std::erase(text, ' ');
  const std::size_t known = std::min(text.size(), beginning.size());
  return text.compare(0, known, beginning.substr(0, known)) != 0;
}

Result<void> Journal::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file_.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error("write", written < 0 ? errno : EIO, path_);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fdatasync(file_.get()) != 0) return system_error("flush", errno, path_);
  return {};
}

Result<void> Journal::begin(const JobIdentity& identity) {
  Json::Object job;
  for (const auto& [key, value] : identity) job.emplace_back(key, Json(value));
  Json line;
  line.set("format", format_name);
  line.set("job", Json(std::move(job)));
  if (::ftruncate(file_.get(), 0) != 0) return system_error("empty", errno, path_);
  if (::lseek(file_.get(), 0, SEEK_SET) < 0) return system_error("rewind", errno, path_);
  const Result<void> written = write(line.dump() + "\n");
  if (!written) static_cast<void>(::ftruncate(file_.get(), 0) == 0);
  return written;
}

bool Journal::is_empty() const {
  struct stat status = {};
  return ::fstat(file_.get(), &status) == 0 && status.st_size == 0;
}

Result<void> Journal::resume() {
  FEWBIT_TRY(const auto file, MappedFile::open(path_));
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  const std::size_t last = text.rfind('\n');
  const std::size_t whole = last == std::string_view::npos ? 0 : last + 1;
  if (::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0) {
    return system_error("cut", errno, path_);
  }
  if (::lseek(file_.get(), 0, SEEK_END) < 0) return system_error("rewind", errno, path_);
  return {};
}

Result<void> Journal::append(std::span<const FinishedTask> done) {
  std::string text;
  for (const FinishedTask& one : done) text += fmt::format("{} {:016x}\n", one.task, one.hash);
  return write(text);
}

Result<void> Journal::remove() {
  if (::unlink(path_.c_str()) != 0) return system_error("remove", errno, path_);
  return {};
}

std::string identity_difference(const JobIdentity& begun, const JobIdentity& now) {
  constexpr std::size_t shown = 4;
  std::vector<std::string> differences;
  const auto text_of = [](const std::string* fact) { return fact ? quote(*fact) : "nothing"; };
  for (const auto& [key, value] : begun) {
    const std::string* other = find_fact(now, key);
    if (other != nullptr && *other == value) continue;
    differences.push_back(
        fmt::format("{}: begun with {}, now {}", key, quote(value), text_of(other)));
  }
  for (const auto& [key, value] : now) {
    if (find_fact(begun, key) == nullptr) {
      differences.push_back(fmt::format("{}: begun with nothing, now {}", key, quote(value)));
    }
  }
  const std::size_t count = std::min(differences.size(), shown);
  std::string text =
      fmt::format("{}", fmt::join(differences.begin(),
                                  differences.begin() + static_cast<std::ptrdiff_t>(count), "; "));
  if (differences.size() > count) text += fmt::format(" and {} more", differences.size() - count);
  return text;
}

}  // namespace fewbit
