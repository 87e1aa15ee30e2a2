// SPDX-License-Identifier: Apache-2.0
#include "scheme/config_word.hpp"

namespace fewbit {

const std::string* word_of(const Json* value) {
  const std::string* text = value != nullptr ? value->as_string() : nullptr;
  const bool blank = text == nullptr || text->find_first_not_of(" \t\r\n\v\f") == std::string::npos;
  return blank ? nullptr : text;
}

bool is_odd_word(const Json* value) {
  return value != nullptr && !value->is_null() && word_of(value) == nullptr;
}

std::string word_at(const Json& block, std::string_view key) {
  const std::string* text = word_of(block.find(key));
  return text != nullptr ? *text : std::string();
}

}  // namespace fewbit
