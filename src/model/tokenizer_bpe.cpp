// SPDX-License-Identifier: Apache-2.0
// Reading of a BPE vocabulary and its merges.
#include "model/tokenizer_bpe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/quote.hpp"
#include "model/tokenizer_bytes.hpp"
#include "model/utf8.hpp"

namespace fewbit {
namespace {

Error corrupt(const std::string& where, std::string what) {
  return Error{ErrorCode::corrupt, std::move(what), where};
}

bool is_unset(const Json* value) {
  return value == nullptr || value->is_null() ||
         (value->as_string() != nullptr && value->as_string()->empty());
}

// A merge as ["a", "b"] or "a b".
struct MergeText {
  std::string_view left;
  std::string_view right;
};
std::optional<MergeText> read_merge_text(const Json& entry) {
  if (const std::string* text = entry.as_string()) {
    const std::size_t space = text->find(' ');
    if (space == std::string::npos || text->find(' ', space + 1) != std::string::npos) return {};
    const std::string_view view = *text;
    return MergeText{view.substr(0, space), view.substr(space + 1)};
  }
  const Json::Array* pair = entry.as_array();
  if (pair == nullptr || pair->size() != 2) return {};
  const std::string* left = (*pair)[0].as_string();
  const std::string* right = (*pair)[1].as_string();
  if (left == nullptr || right == nullptr) return {};
  return MergeText{*left, *right};
}

}  // namespace

Result<BpeModel> BpeModel::read(const Json& model, const std::string& where) {
  const Json* type = model.find("type");
  if (type == nullptr || type->as_string() == nullptr || *type->as_string() != "BPE") {
    return Error{ErrorCode::unsupported,
                 fmt::format("model type {}, expected \"BPE\"",
                             type == nullptr ? std::string("missing") : type->dump()),
                 where};
  }
  BpeModel bpe;
  bpe.where_ = where;
  FEWBIT_TRY(bpe.check_options(model, where));
  FEWBIT_TRY(bpe.read_vocabulary(model, where));
  FEWBIT_TRY(bpe.read_merges(model, where));
  const auto missing = std::find(bpe.byte_ids_.begin(), bpe.byte_ids_.end(), -1);
  if (missing != bpe.byte_ids_.end() && !is_unset(model.find("unk_token"))) {
    return Error{ErrorCode::unsupported,
                 fmt::format("unk_token {} with a vocabulary that has no token for byte {}",
                             model.find("unk_token")->dump(), missing - bpe.byte_ids_.begin()),
                 where};
  }
  return bpe;
}

Result<void> BpeModel::check_options(const Json& model, const std::string& where) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!is_unset(model.find(key))) {
      return Error{ErrorCode::unsupported,
                   fmt::format("{} {}, expected none", key, model.find(key)->dump()), where};
    }
  }
  const Json* dropout = model.find("dropout");
  if (!is_unset(dropout) && dropout->as_double() != 0.0) {
    return Error{ErrorCode::unsupported, fmt::format("dropout {}, expected 0", dropout->dump()),
                 where};
  }
  const Json* fallback = model.find("byte_fallback");
  if (!is_unset(fallback) && fallback->as_bool() != false) {
    return Error{ErrorCode::unsupported,
                 fmt::format("byte_fallback {}, expected false", fallback->dump()), where};
  }
  const Json* ignore = model.find("ignore_merges");
  if (!is_unset(ignore)) {
    if (!ignore->as_bool()) {
      return corrupt(where, fmt::format("ignore_merges {}, expected a boolean", ignore->dump()));
    }
    ignore_merges_ = *ignore->as_bool();
  }
  return {};
}

Result<void> BpeModel::read_vocabulary(const Json& model, const std::string& where) {
  const Json* vocab = model.find("vocab");
  const Json::Object* members = vocab == nullptr ? nullptr : vocab->as_object();
  if (members == nullptr) return corrupt(where, "model.vocab is missing or no object");
  if (members->size() > static_cast<std::size_t>(max_token_ids)) {
    return Error{ErrorCode::limit,
                 fmt::format("vocabulary of {} tokens, at most {}", members->size(), max_token_ids),
                 where};
  }
  for (const auto& [text, value] : *members) {
    const std::optional<std::int64_t> id = value.as_int64();
    if (!id || *id < 0 || *id >= max_token_ids) {
      return corrupt(where, fmt::format("token {} has id {}, expected an integer from 0 to {}",
                                        quote(text), value.dump(), max_token_ids - 1));
    }
    const auto small = static_cast<std::int32_t>(*id);
    std::optional<std::string> bytes = bytes_of_spelling(text);
    if (ignore_merges_ && bytes) whole_words_.emplace(*bytes, small);
    if (!bytes_.emplace(small, bytes ? *std::move(bytes) : text).second) {
      return corrupt(where, fmt::format("token {} has id {}, which another token has too",
                                        quote(text), small));
    }
    ids_.emplace(text, small);
    max_id_ = std::max(max_id_, small);
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_utf8(byte_spelling[byte], spelled);
    byte_ids_[byte] = find(spelled).value_or(-1);
  }
  return {};
}

Result<void> BpeModel::read_merges(const Json& model, const std::string& where) {
  const Json* merges = model.find("merges");
  const Json::Array* entries = merges == nullptr ? nullptr : merges->as_array();
  if (entries == nullptr) return corrupt(where, "model.merges is missing or no array");
  if (entries->size() > static_cast<std::size_t>(max_token_ids)) {
    return Error{ErrorCode::limit,
                 fmt::format("{} merges, at most {}", entries->size(), max_token_ids), where};
  }
  merges_.reserve(entries->size());
  std::int32_t rank = 0;
  for (const Json& entry : *entries) FEWBIT_TRY(add_merge(entry, rank++, where));
  return {};
}

Result<void> BpeModel::add_merge(const Json& entry, std::int32_t rank, const std::string& where) {
  const std::optional<MergeText> text = read_merge_text(entry);
  if (!text) {
    return corrupt(where, fmt::format("merge {} is {}, expected [\"a\", \"b\"] or \"a b\"", rank,
                                      quote(entry.dump())));
  }
  const std::string merged = std::string(text->left) + std::string(text->right);
  for (const std::string_view token : {text->left, text->right, std::string_view(merged)}) {
    if (!find(token)) {
      return corrupt(where, fmt::format("merge {} ({} + {}) needs token {}, which the vocabulary "
                                        "lacks",
                                        rank, quote(text->left), quote(text->right), quote(token)));
    }
  }
  const auto left = static_cast<std::uint32_t>(*find(text->left));
  const auto right = static_cast<std::uint32_t>(*find(text->right));
  // Of a pair listed twice the last one counts, as in the reference library.
  merges_[(std::uint64_t{left} << 32) | right] = Merge{rank, *find(merged)};
  return {};
}

std::optional<std::int32_t> BpeModel::find(std::string_view spelled) const {
  const auto found = ids_.find(spelled);
  if (found == ids_.end()) return {};
  return found->second;
}

const std::string* BpeModel::bytes(std::int32_t id) const {
  const auto found = bytes_.find(id);
  return found == bytes_.end() ? nullptr : &found->second;
}

}  // namespace fewbit
