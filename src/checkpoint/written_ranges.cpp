// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/written_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace fewbit {

void WrittenRanges::add(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
  while (at != ranges_.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    bytes_ -= at->second - at->first;
    at = ranges_.erase(at);
  }
  ranges_.emplace(begin, end);
  bytes_ += end - begin;
}

std::uint64_t WrittenRanges::first_missing() const {
  const auto first = ranges_.begin();
  return first != ranges_.end() && first->first == 0 ? first->second : 0;
}

}  // namespace fewbit
