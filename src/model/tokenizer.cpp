// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: added tokens, normalization, words, merges.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "checkpoint/json.hpp"
#include "core/quote.hpp"
#include "core/utf8.hpp"
#include "fewbit/model.hpp"
#include "model/tokenizer_added.hpp"
#include "model/tokenizer_bpe.hpp"
#include "model/tokenizer_file.hpp"
#include "model/tokenizer_split.hpp"
#include "model/utf8.hpp"

namespace fewbit {
namespace {

// Positions inside a word are 32-bit, and text and symbols are held in memory at once.
constexpr std::size_t max_text_bytes = std::size_t{1} << 28;

}  // namespace

struct Tokenizer::State {
  BpeModel model;
  WordSplitter splitter;
  Normalizer normalizer = Normalizer::none;
  AddedTokenMatcher raw_tokens;         // looked for in the text as it is
  AddedTokenMatcher normalized_tokens;  // and then in normalized text
  std::unordered_map<std::int32_t, AddedToken> added;
  std::int64_t vocab_size = 0;
  std::string file;

  // Ids of text without added tokens.
  Result<void> encode_plain(std::string_view text, WordSplitter::Words& words,
                            BpeModel::Scratch& scratch, std::vector<std::int32_t>& ids) const {
    FEWBIT_TRY(splitter.split(text, words));
    for (const std::string_view word : words.views) FEWBIT_TRY(model.encode(word, scratch, ids));
    return {};
  }
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::open(const std::filesystem::path& tokenizer_json) {
  const std::string where = tokenizer_json.string();
  FEWBIT_TRY(const Json root, read_tokenizer_file(tokenizer_json));
  const Json* model = root.find("model");
  if (model == nullptr || !model->is_object()) {
    return Error{ErrorCode::corrupt, "model is missing or no object", where};
  }
  FEWBIT_TRY(const Normalizer normalizer, read_normalizer(root.find("normalizer"), where));
  FEWBIT_TRY(check_post_processor(root.find("post_processor"), where));
  FEWBIT_TRY(check_decoder(root.find("decoder"), where));
  FEWBIT_TRY(WordSplitter splitter, WordSplitter::read(root.find("pre_tokenizer"), where));
  FEWBIT_TRY(BpeModel bpe, BpeModel::read(*model, where));
  FEWBIT_TRY(const auto added, read_added_tokens(root, bpe, where));
  auto state = std::make_unique<State>(State{std::move(bpe),
                                             std::move(splitter),
                                             normalizer,
                                             AddedTokenMatcher(),
                                             AddedTokenMatcher(),
                                             {},
                                             0,
                                             where});
  std::int32_t max_id = state->model.max_id();
  for (AddedToken token : added) {
    max_id = std::max(max_id, token.id);
    state->added.emplace(token.id, token);
    if (token.normalized) {
      token.content = normalize(normalizer, token.content);
      state->normalized_tokens.add(token);
    } else {
      state->raw_tokens.add(token);
    }
  }
  state->vocab_size = std::int64_t{max_id} + 1;
  return Tokenizer(std::move(state));
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text) const {
  if (text.size() > max_text_bytes) {
    return Error{ErrorCode::limit,
                 fmt::format("text of {} bytes, at most {}", text.size(), max_text_bytes), ""};
  }
  if (const std::size_t at = utf8_valid_prefix(text); at < text.size()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("byte {} of {} (0x{:02x}) is not UTF-8", at, text.size(),
                             static_cast<unsigned char>(text[at])),
                 ""};
  }
  std::vector<std::int32_t> ids;
  WordSplitter::Words words;
  BpeModel::Scratch scratch;
  for (const auto& raw : state_->raw_tokens.split(text)) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    const std::string normalized = normalize(state_->normalizer, raw.text);
    for (const auto& piece : state_->normalized_tokens.split(normalized)) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        FEWBIT_TRY(state_->encode_plain(piece.text, words, scratch, ids));
      }
    }
  }
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const std::int32_t> ids, bool keep_special) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (const auto added = state_->added.find(id); added != state_->added.end()) {
      if (keep_special || !added->second.special) text += added->second.content;
    } else if (const std::string* bytes = state_->model.bytes(id)) {
      text += *bytes;
    } else {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("id {} is not in the vocabulary of {} ids", id, vocab_size()),
                   state_->file};
    }
  }
  return text;
}

std::int64_t Tokenizer::vocab_size() const { return state_->vocab_size; }

}  // namespace fewbit
