// SPDX-License-Identifier: Apache-2.0
#include "scheme/kept_files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>

#include "core/ascii.hpp"
#include "scheme/plain_config.hpp"

namespace fewbit {
namespace {

// Byte-level BPE, SentencePiece, tiktoken, Mistral's tekken.
constexpr std::array<std::string_view, 7> names = {"added_tokens.json", "special_tokens_map.json",
                                                   "merges.txt",        "vocab.json",
                                                   "vocab.txt",         "vocab.bpe",
                                                   "tekken.json"};
constexpr std::array<std::string_view, 3> beginnings = {"tokenizer", "tokenization_",
                                                        "chat_template"};
constexpr std::array<std::string_view, 4> endings = {"config.json", ".model", ".tiktoken",
                                                     ".jinja"};
constexpr std::array<std::string_view, 5> of_licences = {"license", "licence", "copying", "notice",
                                                         "use_policy"};

}  // namespace

bool is_kept_file(std::string_view name) {
  const std::string lower = lower_ascii(name);
  const std::string_view text = lower;
  return is_config_file(std::filesystem::path(name)) ||
         std::ranges::find(names, text) != names.end() ||
         std::ranges::any_of(beginnings, [&](auto word) { return text.starts_with(word); }) ||
         std::ranges::any_of(endings, [&](auto word) { return text.ends_with(word); }) ||
         std::ranges::any_of(of_licences, [&](auto word) { return text.find(word) != text.npos; });
}

}  // namespace fewbit
