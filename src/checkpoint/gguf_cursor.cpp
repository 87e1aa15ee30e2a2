// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_cursor.hpp"

#include <fmt/format.h>

#include <bit>

namespace fewbit {

static_assert(std::endian::native == std::endian::little);

Result<std::span<const std::byte>> GgufCursor::take(std::uint64_t bytes, std::string_view what) {
  if (bytes > remaining()) {
    return fail("truncated", fmt::format("{} at byte {} takes {} bytes, the file has {}", what,
                                         position_, bytes, file_.size()));
  }
  const auto taken = file_.subspan(position_, bytes);
  position_ += bytes;
  return taken;
}

Result<std::uint64_t> GgufCursor::length(std::string_view what) {
  if (length_bytes_ == 8) return number<std::uint64_t>(what);
  FEWBIT_TRY(const std::uint32_t value, number<std::uint32_t>(what));
  return std::uint64_t{value};
}

Result<std::string_view> GgufCursor::string(std::string_view what) {
  FEWBIT_TRY(const std::uint64_t bytes, length(what));
  FEWBIT_TRY(const auto text, take(bytes, what));
  return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
}

Result<std::span<const std::byte>> GgufCursor::strings(std::uint64_t count, std::string_view what) {
  const std::uint64_t begin = position_;
  for (std::uint64_t i = 0; i < count; ++i) FEWBIT_TRY(string(what));
  return file_.subspan(begin, position_ - begin);
}

std::string GgufCursor::where(std::string_view item) const {
  return item.empty() ? where_ : fmt::format("{}: {}", where_, item);
}

Error GgufCursor::fail(std::string_view rule, std::string_view what, std::string_view item) const {
  return Error{ErrorCode::corrupt, fmt::format("{}: {}", rule, what), where(item)};
}

}  // namespace fewbit
