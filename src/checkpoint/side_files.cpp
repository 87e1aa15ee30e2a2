// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/side_files.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

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

}  // namespace

Result<std::vector<fs::path>> side_files(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!it->is_regular_file(ignored) || !is_side_file(it->path())) continue;
    if (it->file_size(ignored) <= largest_side_file) files.push_back(it->path());
  }
  if (error) return Error{ErrorCode::io, error.message(), folder.string()};
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace fewbit
