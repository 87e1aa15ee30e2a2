// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding: the vocabulary, the merges, and merging.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// Ids and counts beyond this are refused, so that a file can't ask for huge tables.
constexpr std::int64_t max_token_ids = std::int64_t{1} << 22;

class BpeModel {
 public:
  // model: the "model" object of a tokenizer.json. Errors: corrupt (ids not unique, a merge of or
  // into a token that the vocabulary lacks: named), unsupported (an option, by name), limit.
  static Result<BpeModel> read(const Json& model, const std::string& where);

  // Memory of encode(), kept between words.
  struct Scratch {
    struct Symbol {
      std::int32_t id = 0;
      std::int32_t previous = -1;
      std::int32_t next = -1;  // -1: last
      bool merged_away = false;
    };
    // A pair that may merge: symbol at `position` with its next one.
    struct Candidate {
      std::int32_t rank = 0;
      std::int32_t position = 0;
      std::int32_t merged_id = 0;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };
  // Appends the ids of one word (raw bytes): merges by lowest rank, then leftmost, O(n log n).
  // Error unsupported: a byte without a token.
  Result<void> encode(std::string_view word, Scratch& scratch,
                      std::vector<std::int32_t>& ids) const;

  // Id of a token by its text in the file.
  std::optional<std::int32_t> find(std::string_view spelled) const;
  bool contains(std::int32_t id) const { return bytes_.contains(id); }
  // What the id decodes to; nullptr when absent. Spelled bytes are raw again.
  const std::string* bytes(std::int32_t id) const;
  std::int32_t max_id() const { return max_id_; }

 private:
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t id = 0;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const;
  };
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  Result<void> read_vocabulary(const Json& model, const std::string& where);
  Result<void> read_merges(const Json& model, const std::string& where);
  Result<void> add_merge(const Json& entry, std::int32_t rank, const std::string& where);
  Result<void> check_options(const Json& model, const std::string& where);
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  void offer(Scratch& scratch, std::int32_t position) const;

  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> ids_;  // as spelled
  std::unordered_map<std::int32_t, std::string> bytes_;
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;
  std::array<std::int32_t, 256> byte_ids_{};  // -1: the vocabulary has no token for the byte
  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> whole_words_;
  bool ignore_merges_ = false;
  std::int32_t max_id_ = -1;
  std::string where_;
};

}  // namespace fewbit
