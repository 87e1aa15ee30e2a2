// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer_bytes.hpp"

#include "model/utf8.hpp"

namespace fewbit {
namespace {

constexpr std::size_t spelled_end = 0x144;

// code point -> byte, -1 where none
constexpr std::array<std::int16_t, spelled_end> make_inverse() {
  std::array<std::int16_t, spelled_end> inverse{};
  for (auto& byte : inverse) byte = -1;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    inverse[byte_spelling[byte]] = static_cast<std::int16_t>(byte);
  }
  return inverse;
}
constexpr std::array<std::int16_t, spelled_end> byte_of = make_inverse();
static_assert(byte_spelling[' '] == 0x120 && byte_of[0x143] == 0xAD);

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelled) {
  std::string bytes;
  bytes.reserve(spelled.size());
  while (!spelled.empty()) {
    const Utf8Step step = utf8_step(spelled);
    if (!step.valid || step.code_point >= spelled_end || byte_of[step.code_point] < 0) return {};
    bytes.push_back(static_cast<char>(byte_of[step.code_point]));
    spelled.remove_prefix(step.bytes);
  }
  return bytes;
}

}  // namespace fewbit
