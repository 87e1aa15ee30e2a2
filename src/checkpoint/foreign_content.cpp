// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/foreign_content.hpp"

#include <algorithm>

namespace fewbit {
namespace {

struct Signature {
  std::string_view start;
  std::string_view meaning;
};

constexpr std::string_view lfs_start = "version https://git-lfs";

constexpr Signature signatures[] = {
    {"GGUF", "a GGUF file"},
    {lfs_start, "a Git LFS pointer, the data itself was not downloaded"},
    {"PK\x03\x04", "a zip archive, as PyTorch's .bin and .pt files are"},
    {"\x80\x02", "a Python pickle, as old PyTorch files are"},
    {"<!DOCTYPE", "an HTML page, perhaps the error page of a failed download"},
    {"<!doctype", "an HTML page, perhaps the error page of a failed download"},
    {"<html", "an HTML page, perhaps the error page of a failed download"},
    {"\x89HDF", "an HDF5 file"},
};

}  // namespace

std::string_view foreign_content(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()),
                              std::min<std::size_t>(file.size(), 64));
  const auto* match = std::find_if(std::begin(signatures), std::end(signatures),
                                   [&](const Signature& s) { return text.starts_with(s.start); });
  return match == std::end(signatures) ? std::string_view() : match->meaning;
}

Result<void> expect_json(std::span<const std::byte> file, const std::string& where) {
  const std::string_view foreign = foreign_content(file);
  if (foreign.empty()) return {};
  return Error{ErrorCode::corrupt, "expected JSON text, this is " + std::string(foreign), where};
}

bool is_lfs_pointer(std::span<const std::byte> file) {
  return std::string_view(reinterpret_cast<const char*>(file.data()), file.size())
      .starts_with(lfs_start);
}

}  // namespace fewbit
