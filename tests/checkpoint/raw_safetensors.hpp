// SPDX-License-Identifier: Apache-2.0
// safetensors bytes put together by hand, right or wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fewbit {

inline std::string little_endian_u64(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

inline std::string raw_safetensors(std::string_view header, std::string_view data = {}) {
  return little_endian_u64(header.size()) + std::string(header) + std::string(data);
}

// {"name":{"dtype":"…","shape":…,"data_offsets":…}} without the outer braces.
inline std::string raw_entry(std::string_view name, std::string_view dtype, std::string_view shape,
                             std::string_view offsets) {
  return "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) +
         "\",\"shape\":" + std::string(shape) + ",\"data_offsets\":" + std::string(offsets) + "}";
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace fewbit
