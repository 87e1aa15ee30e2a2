// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

namespace fewbit {

// Which bytes of a tensor were written: disjoint ranges, neighbours merged.
class WrittenRanges {
 public:
  // Marks [begin, end) as written.
  void add(std::uint64_t begin, std::uint64_t end);
  // Bytes written; a byte written twice counts once.
  std::uint64_t bytes() const { return bytes_; }
  // First byte not written yet.
  std::uint64_t first_missing() const;

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // begin -> end
  std::uint64_t bytes_ = 0;
};

}  // namespace fewbit
