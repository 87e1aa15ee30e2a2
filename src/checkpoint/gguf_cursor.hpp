// SPDX-License-Identifier: Apache-2.0
// Reads the header of a GGUF file from front to back; nothing is read past its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "fewbit/result.hpp"

namespace fewbit {

class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> file, std::string where)
      : file_(file), where_(std::move(where)) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return file_.size() - position_; }
  std::uint64_t file_bytes() const { return file_.size(); }

  // Version 1 stores counts, lengths and dimensions in 32 bits, later ones in 64.
  void set_version(std::uint32_t version) { length_bytes_ = version == 1 ? 4 : 8; }
  std::uint64_t length_bytes() const { return length_bytes_; }

  // A little-endian number; `what` names it in the error.
  template <class T>
  Result<T> number(std::string_view what) {
    T value{};
    FEWBIT_TRY(const auto bytes, take(sizeof(T), what));
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  Result<std::uint64_t> length(std::string_view what);
  // Length and bytes; the text lies in the file.
  Result<std::string_view> string(std::string_view what);
  // The bytes of `count` strings with their lengths.
  Result<std::span<const std::byte>> strings(std::uint64_t count, std::string_view what);
  Result<std::span<const std::byte>> take(std::uint64_t bytes, std::string_view what);

  // The file, and `item` of it when there is one.
  std::string where(std::string_view item) const;
  // Error corrupt, "rule: what", at where(item).
  Error fail(std::string_view rule, std::string_view what, std::string_view item = {}) const;

 private:
  std::span<const std::byte> file_;
  std::string where_;
  std::uint64_t position_ = 0;
  std::uint64_t length_bytes_ = 8;
};

}  // namespace fewbit
