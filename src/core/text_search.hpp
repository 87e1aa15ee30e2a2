// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace fewbit {

inline bool contains_text(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}
inline bool contains_any(std::string_view text, std::initializer_list<std::string_view> pieces) {
  return std::any_of(pieces.begin(), pieces.end(),
                     [text](std::string_view piece) { return contains_text(text, piece); });
}

}  // namespace fewbit
