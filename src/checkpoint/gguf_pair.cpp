// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_pair.hpp"

namespace fewbit {

GgufPair gguf_copy(std::string key, const GgufValue& value) {
  GgufPair pair{std::move(key), {}};
  const auto number = [&](auto part) { gguf_encoding::append_number(pair.encoded, part); };
  if (value.is_array()) number(static_cast<std::uint32_t>(GgufKind::array));
  number(static_cast<std::uint32_t>(value.kind()));
  if (value.is_array()) number(value.size());
  if (value.kind() != GgufKind::string) {
    const auto bytes = value.bytes();
    pair.encoded.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } else if (const auto text = value.as_string()) {
    gguf_encoding::append_string(pair.encoded, *text);
  } else {
    // Version 1 stores shorter lengths, so strings can't be copied as bytes.
    for (const std::string_view element : value.strings()) {
      gguf_encoding::append_string(pair.encoded, element);
    }
  }
  return pair;
}

}  // namespace fewbit
