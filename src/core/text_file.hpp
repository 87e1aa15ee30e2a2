// SPDX-License-Identifier: Apache-2.0
// Small text files of the kernel (/proc, /sys) and the numbers in them.
#pragma once

#include <charconv>
#include <concepts>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fewbit {

// Empty when the file can't be read.
inline std::string read_kernel_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return parts;
    text.remove_prefix(begin);
    const std::size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end);
  }
}

// The whole of `text` as a decimal number, spaces around it allowed.
template <std::integral T>
std::optional<T> parse_number(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, " \t\n");
  if (parts.size() != 1) return std::nullopt;
  const std::string_view part = parts.front();
  T value{};
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc{} || end != part.data() + part.size()) return std::nullopt;
  return value;
}

}  // namespace fewbit
