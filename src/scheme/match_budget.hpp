// SPDX-License-Identifier: Apache-2.0
// What all patterns of a checkpoint's configs may take together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace fewbit {

// Steps to be compiled and to match all names: each pattern alone is bounded on each name, which
// many patterns and names make too much. Memory, too.
class MatchBudget {
 public:
  static constexpr std::uint64_t most_steps = std::uint64_t{1} << 27;  // a second or two

  explicit MatchBudget(std::uint64_t most = most_steps) : most_(most) {}
  void spend(std::uint64_t steps) { spent_ += steps; }
  std::uint64_t steps() const { return spent_; }
  bool spent() const { return spent_ >= most_; }
  std::uint64_t most() const { return most_; }

  // Whether a pattern that took so many is what they were spent on; else it is the sum of many.
  bool is_much(std::uint64_t steps) const { return steps >= most_ / 16; }
  // Smaller sums of one pattern are kept by the pattern itself.
  bool is_worth_a_note(std::uint64_t steps) const { return steps > most_ / 1024; }
  // Steps of what was spent that were this pattern's, in whichever list of a config it stands.
  void note(std::string_view pattern, std::uint64_t steps);

  // "the 9 match steps that all patterns of a config have together are spent, 7 of them by …"; by
  // their sum where no pattern took much.
  std::string spent_text() const;
  // What would help: fewer steps for that pattern, or fewer patterns.
  std::string remedy() const;

  // Bytes of compiled patterns that are kept for the next match.
  static constexpr std::size_t most_kept_bytes = std::size_t{12} << 20;
  bool has_room(std::size_t bytes) const { return bytes <= most_kept_bytes - kept_bytes_; }
  // At most what there is room for.
  std::size_t keep(std::size_t bytes) {
    const std::size_t kept = std::min(bytes, most_kept_bytes - kept_bytes_);
    kept_bytes_ += kept;
    return kept;
  }
  void release(std::size_t bytes) { kept_bytes_ -= bytes; }

 private:
  std::uint64_t most_;
  std::uint64_t spent_ = 0;
  std::size_t kept_bytes_ = 0;
  // By the text as messages show it; of at most 1024 patterns, for each took a part of the whole.
  std::map<std::string, std::uint64_t, std::less<>> noted_;
  std::string costliest_;
  std::uint64_t costliest_steps_ = 0;
};

}  // namespace fewbit
