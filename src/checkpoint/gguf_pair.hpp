// SPDX-License-Identifier: Apache-2.0
// Key-value pairs of a GGUF file to be written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "checkpoint/gguf_metadata.hpp"

namespace fewbit {

// The type number of a C++ type in the file.
template <class T>
constexpr GgufKind gguf_kind_of() {
  if constexpr (std::is_same_v<T, bool>) return GgufKind::boolean;
  if constexpr (std::is_same_v<T, float>) return GgufKind::f32;
  if constexpr (std::is_same_v<T, double>) return GgufKind::f64;
  if constexpr (std::is_convertible_v<T, std::string_view>) return GgufKind::string;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    constexpr GgufKind unsigned_kinds[] = {GgufKind::u8, GgufKind::u16, GgufKind::u32,
                                           GgufKind::u64};
    constexpr GgufKind signed_kinds[] = {GgufKind::i8, GgufKind::i16, GgufKind::i32, GgufKind::i64};
    constexpr int log2_bytes = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? signed_kinds[log2_bytes] : unsigned_kinds[log2_bytes];
  }
}

// Encoded as versions 2 and 3 store it.
struct GgufPair {
  std::string key;
  std::string encoded;  // type and value
};

namespace gguf_encoding {

template <class T>
void append_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
inline void append_string(std::string& out, std::string_view text) {
  append_number(out, std::uint64_t{text.size()});
  out += text;
}
template <class T>
void append_value(std::string& out, const T& value) {
  if constexpr (gguf_kind_of<T>() == GgufKind::string) {
    append_string(out, value);
  } else {
    append_number(out, value);
  }
}

}  // namespace gguf_encoding

// A single value; its C++ type decides the stored one.
template <class T>
GgufPair gguf_pair(std::string key, const T& value) {
  GgufPair pair{std::move(key), {}};
  gguf_encoding::append_number(pair.encoded, static_cast<std::uint32_t>(gguf_kind_of<T>()));
  gguf_encoding::append_value(pair.encoded, value);
  return pair;
}

template <class T>
GgufPair gguf_array(std::string key, std::span<const T> values) {
  GgufPair pair{std::move(key), {}};
  gguf_encoding::append_number(pair.encoded, static_cast<std::uint32_t>(GgufKind::array));
  gguf_encoding::append_number(pair.encoded, static_cast<std::uint32_t>(gguf_kind_of<T>()));
  gguf_encoding::append_number(pair.encoded, std::uint64_t{values.size()});
  for (const T& value : values) gguf_encoding::append_value(pair.encoded, value);
  return pair;
}

// A value as it was read, with its stored type.
GgufPair gguf_copy(std::string key, const GgufValue& value);

}  // namespace fewbit
