// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer_added.hpp"

#include <fmt/format.h>

#include <unordered_set>

#include "core/quote.hpp"
#include "model/utf8.hpp"

namespace fewbit {
namespace {

constexpr std::size_t max_added_tokens = std::size_t{1} << 16;
// Bounds the work at each byte of a text.
constexpr std::size_t max_content_bytes = 1024;

Error corrupt(const std::string& where, std::string what) {
  return Error{ErrorCode::corrupt, std::move(what), where};
}

bool flag(const Json& entry, std::string_view key) {
  const Json* value = entry.find(key);
  return value != nullptr && value->as_bool().value_or(false);
}

// The vocabulary has the text under this id, or neither of them.
Result<void> check_vocabulary(const std::string& text, std::int32_t id, const BpeModel& model,
                              const std::string& where) {
  const std::optional<std::int32_t> known = model.find(text);
  if (known ? *known != id : model.contains(id)) {
    return corrupt(where, known ? fmt::format("added token {} has id {}, in the vocabulary {}",
                                              quote(text), id, *known)
                                : fmt::format("added token {} has id {}, which another token of "
                                              "the vocabulary has",
                                              quote(text), id));
  }
  return {};
}

Result<AddedToken> read_added_token(const Json& entry, const BpeModel& model,
                                    const std::string& where) {
  const Json* content = entry.find("content");
  const Json* id = entry.find("id");
  if (content == nullptr || content->as_string() == nullptr || id == nullptr ||
      !id->as_int64().has_value()) {
    return corrupt(
        where, fmt::format("added token {} lacks a content or an integer id", quote(entry.dump())));
  }
  const std::string& text = *content->as_string();
  const std::int64_t number = *id->as_int64();
  if (number < 0 || number >= max_token_ids) {
    return corrupt(where, fmt::format("added token {} has id {}, expected 0 to {}", quote(text),
                                      number, max_token_ids - 1));
  }
  if (text.size() > max_content_bytes) {
    return Error{ErrorCode::limit,
                 fmt::format("added token {} has {} bytes, at most {}", quote(text), text.size(),
                             max_content_bytes),
                 where};
  }
  if (flag(entry, "single_word")) {
    return Error{ErrorCode::unsupported, fmt::format("single_word of added token {}", quote(text)),
                 where};
  }
  const auto small = static_cast<std::int32_t>(number);
  FEWBIT_TRY(check_vocabulary(text, small, model, where));
  return AddedToken{small,
                    text,
                    flag(entry, "special"),
                    flag(entry, "normalized"),
                    flag(entry, "lstrip"),
                    flag(entry, "rstrip")};
}

// First byte of the white space that ends text[floor, end).
std::size_t space_begin(std::string_view text, std::size_t floor, std::size_t end) {
  std::size_t begin = end;
  while (begin > floor) {
    std::size_t start = begin - 1;
    while (start > floor && (static_cast<std::uint8_t>(text[start]) & 0xC0U) == 0x80U) --start;
    if (!is_white_space(utf8_step(text.substr(start)).code_point)) break;
    begin = start;
  }
  return begin;
}

std::size_t space_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Utf8Step step = utf8_step(text.substr(begin));
    if (!is_white_space(step.code_point)) break;
    begin += step.bytes;
  }
  return begin;
}

}  // namespace

Result<std::vector<AddedToken>> read_added_tokens(const Json& root, const BpeModel& model,
                                                  const std::string& where) {
  std::vector<AddedToken> tokens;
  const Json* list = root.find("added_tokens");
  if (list == nullptr || list->is_null()) return tokens;
  const Json::Array* entries = list->as_array();
  if (entries == nullptr) {
    return corrupt(where, fmt::format("added_tokens is {}, expected an array", list->kind()));
  }
  if (entries->size() > max_added_tokens) {
    return Error{ErrorCode::limit,
                 fmt::format("{} added tokens, at most {}", entries->size(), max_added_tokens),
                 where};
  }
  std::unordered_set<std::int32_t> ids;
  std::unordered_set<std::string> contents;
  for (const Json& entry : *entries) {
    FEWBIT_TRY(AddedToken token, read_added_token(entry, model, where));
    if (!ids.insert(token.id).second || !contents.insert(token.content).second) {
      return corrupt(where, fmt::format("added token {} with id {} is there twice",
                                        quote(token.content), token.id));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::uint32_t AddedTokenMatcher::child(std::uint32_t node, char byte) const {
  const auto edge = edges_.find((std::uint64_t{node} << 8) | static_cast<std::uint8_t>(byte));
  return edge == edges_.end() ? 0 : edge->second;
}

void AddedTokenMatcher::add(const AddedToken& token) {
  if (token.content.empty()) return;
  std::uint32_t node = 0;
  for (const char byte : token.content) {
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.emplace((std::uint64_t{node} << 8) | static_cast<std::uint8_t>(byte), next);
    }
    node = next;
  }
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenMatcher::Found AddedTokenMatcher::longest(std::string_view text, std::size_t at) const {
  Found found;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == 0) break;
    if (nodes_[node].token >= 0) found = {nodes_[node].token, i + 1 - at};
  }
  return found;
}

std::vector<AddedTokenMatcher::Piece> AddedTokenMatcher::split(std::string_view text) const {
  std::vector<Piece> pieces;
  if (tokens_.empty()) {
    if (!text.empty()) pieces.push_back({text, -1});
    return pieces;
  }
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Found found = longest(text, at);
    if (found.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found.token)];
    const std::size_t begin = token.strip_left ? space_begin(text, done, at) : at;
    const std::size_t matched = at + found.bytes;
    const std::size_t end = token.strip_right ? space_end(text, matched) : matched;
    if (begin > done) pieces.push_back({text.substr(done, begin - done), -1});
    pieces.push_back({text.substr(begin, end - begin), token.id});
    done = end;
    at = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done), -1});
  return pieces;
}

}  // namespace fewbit
