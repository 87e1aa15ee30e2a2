// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/side_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "checkpoint/file_kind.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t largest_side_file = std::uintmax_t{64} << 20;

// Of an output that is being written into this very folder.
constexpr std::string_view unfinished_journal = ".partial.journal";

bool is_side_file(const fs::path& path) {
  constexpr std::array<std::string_view, 10> weights = {
      ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".ckpt", ".npz"};
  const std::string name = path.filename().string();
  if (name.starts_with('.') || name.ends_with(".index.json")) return false;
  if (name.ends_with(unfinished_journal)) return false;
  return std::find(weights.begin(), weights.end(), path.extension().string()) == weights.end();
}

Result<void> expect_copyable(const fs::directory_entry& entry) {
  std::error_code error;
  const fs::file_status status = entry.status(error);
  if (status.type() == fs::file_type::not_found) {
    return Error{ErrorCode::not_found, "a link to nothing", entry.path().string()};
  }
  if (status.type() == fs::file_type::directory && !entry.path().has_extension()) return {};
  FEWBIT_TRY(expect_regular_file(entry.path()));
  const std::uintmax_t bytes = entry.file_size(error);
  if (!error && bytes <= largest_side_file) return {};
  if (error) return Error{ErrorCode::io, error.message(), entry.path().string()};
  return Error{ErrorCode::limit,
               fmt::format("{} bytes, files beside the weights are copied up to {}", bytes,
                           largest_side_file),
               entry.path().string()};
}

}  // namespace

Result<std::vector<fs::path>> side_files(const fs::path& folder) {
  return side_files_with(folder, [](std::string_view) { return false; });
}

Result<std::vector<fs::path>> side_files_with(const fs::path& folder,
                                              bool (*is_needed)(std::string_view)) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!is_side_file(it->path())) continue;
    if (is_needed(it->path().filename().string())) FEWBIT_TRY(expect_copyable(*it));
    if (!it->is_regular_file(ignored)) continue;
    if (it->file_size(ignored) <= largest_side_file) files.push_back(it->path());
  }
  if (error) return Error{ErrorCode::io, error.message(), folder.string()};
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace fewbit
