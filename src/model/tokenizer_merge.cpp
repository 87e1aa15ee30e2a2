// SPDX-License-Identifier: Apache-2.0
// Merging of one word, with a heap of candidate pairs.
#include <fmt/format.h>

#include <algorithm>

#include "model/tokenizer_bpe.hpp"

namespace fewbit {
namespace {

using Candidate = BpeModel::Scratch::Candidate;
using Symbol = BpeModel::Scratch::Symbol;

// Order of a heap whose top is the lowest rank, then the leftmost pair.
bool comes_later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

Symbol& at(std::vector<Symbol>& symbols, std::int32_t position) {
  return symbols[static_cast<std::size_t>(position)];
}

// Replaces the symbol at `position` and its next one by one symbol.
void join(std::vector<Symbol>& symbols, std::int32_t position, std::int32_t merged_id) {
  Symbol& left = at(symbols, position);
  Symbol& right = at(symbols, left.next);
  right.merged_away = true;
  left.id = merged_id;
  left.next = right.next;
  if (left.next >= 0) at(symbols, left.next).previous = position;
}

}  // namespace

// The finalizer of splitmix64: std::hash of an integer is the integer, which a file could choose so
// that all pairs collide.
std::size_t BpeModel::PairHash::operator()(std::uint64_t pair) const {
  pair = (pair ^ (pair >> 30)) * 0xBF58476D1CE4E5B9U;
  pair = (pair ^ (pair >> 27)) * 0x94D049BB133111EBU;
  return pair ^ (pair >> 31);
}

const BpeModel::Merge* BpeModel::find_merge(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find((std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
                                  static_cast<std::uint32_t>(right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::offer(Scratch& scratch, std::int32_t position) const {
  if (position < 0) return;
  const Symbol& left = at(scratch.symbols, position);
  if (left.next < 0) return;
  const Merge* merge = find_merge(left.id, at(scratch.symbols, left.next).id);
  if (merge == nullptr) return;
  scratch.heap.push_back({merge->rank, position, merge->id});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
}

Result<void> BpeModel::encode(std::string_view word, Scratch& scratch,
                              std::vector<std::int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto whole = whole_words_.find(word); whole != whole_words_.end()) {
      ids.push_back(whole->second);
      return {};
    }
  }
  auto& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  const auto count = static_cast<std::int32_t>(word.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<std::uint8_t>(word[static_cast<std::size_t>(i)]);
    if (byte_ids_[byte] < 0) {
      return Error{ErrorCode::unsupported,
                   fmt::format("the vocabulary has no token for byte {} of the text", byte),
                   where_};
    }
    symbols.push_back({byte_ids_[byte], i - 1, i + 1 < count ? i + 1 : -1, false});
  }
  for (std::int32_t i = 0; i + 1 < count; ++i) offer(scratch, i);
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
    const Candidate candidate = scratch.heap.back();
    scratch.heap.pop_back();
    const Symbol& left = at(symbols, candidate.position);
    if (left.merged_away || left.next < 0) continue;
    // Stale when the pair has changed meanwhile, unless it still gives the same token.
    const Merge* merge = find_merge(left.id, at(symbols, left.next).id);
    if (merge == nullptr || merge->id != candidate.merged_id) continue;
    join(symbols, candidate.position, candidate.merged_id);
    offer(scratch, left.previous);
    offer(scratch, candidate.position);
  }
  for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = at(symbols, i).next) {
    ids.push_back(at(symbols, i).id);
  }
  return {};
}

}  // namespace fewbit
