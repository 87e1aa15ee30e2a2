// SPDX-License-Identifier: Apache-2.0
// Which of many literals may stand in a name, in time that hardly depends on their number.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fewbit {

class LiteralIndex {
 public:
  // literals[i] belongs to number i; those too short to be looked up are always candidates.
  explicit LiteralIndex(std::vector<std::string> literals);

  // Appends the numbers whose literal is in `text`, in no order and perhaps twice.
  void candidates(std::string_view text, std::vector<std::size_t>& out) const;
  // The candidates of `text` alone, ascending, once each.
  std::vector<std::size_t> candidates(std::string_view text) const;

 private:
  // Each literal stands under its rarest run of `length` bytes.
  struct Table {
    std::size_t length = 0;
    struct Place {
      std::size_t number;
      std::size_t offset;  // of the run in the literal
    };
    std::unordered_map<std::uint64_t, std::vector<Place>> places;
    std::bitset<std::size_t{1} << 14> seen;
  };
  void fill(Table& table, std::span<const std::size_t> numbers);
  void look_up(const Table& table, std::string_view text, std::vector<std::size_t>& out) const;

  std::vector<std::string> literals_;
  std::vector<std::size_t> always_;
  std::vector<Table> tables_;  // of falling length
};

}  // namespace fewbit
