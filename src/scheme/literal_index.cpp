// SPDX-License-Identifier: Apache-2.0
#include "scheme/literal_index.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fewbit {
namespace {

constexpr std::size_t run_lengths[] = {8, 4, 3, 2};

std::uint64_t run_at(std::string_view text, std::size_t at, std::size_t length) {
  std::uint64_t run = 0;
  std::memcpy(&run, text.data() + at, length);
  return run;
}

std::size_t bit_of(std::uint64_t run) {
  return static_cast<std::size_t>((run * 0x9E3779B97F4A7C15U) >> 50);
}

}  // namespace

LiteralIndex::LiteralIndex(std::vector<std::string> literals) : literals_(std::move(literals)) {
  std::size_t longer = std::string::npos;
  for (const std::size_t length : run_lengths) {
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < literals_.size(); ++i) {
      const std::size_t size = literals_[i].size();
      if (size >= length && size < longer) numbers.push_back(i);
    }
    longer = length;
    if (!numbers.empty()) fill(tables_.emplace_back(Table{length, {}, {}}), numbers);
  }
  for (std::size_t i = 0; i < literals_.size(); ++i) {
    if (literals_[i].size() < longer) always_.push_back(i);
  }
}

void LiteralIndex::fill(Table& table, std::span<const std::size_t> numbers) {
  std::unordered_map<std::uint64_t, std::size_t> counts;
  const auto each_run = [&](std::size_t number, const auto& visit) {
    const std::string& literal = literals_[number];
    for (std::size_t at = 0; at + table.length <= literal.size(); ++at) {
      visit(at, run_at(literal, at, table.length));
    }
  };
  for (const std::size_t number : numbers) {
    each_run(number, [&](std::size_t, std::uint64_t run) { ++counts[run]; });
  }
  for (const std::size_t number : numbers) {
    std::size_t fewest = 0;
    std::pair<std::uint64_t, std::size_t> best;
    each_run(number, [&](std::size_t at, std::uint64_t run) {
      if (fewest != 0 && counts[run] >= fewest) return;
      fewest = counts[run];
      best = {run, at};
    });
    table.places[best.first].push_back({number, best.second});
    table.seen.set(bit_of(best.first));
  }
}

void LiteralIndex::look_up(const Table& table, std::string_view text,
                           std::vector<std::size_t>& out) const {
  for (std::size_t at = 0; at + table.length <= text.size(); ++at) {
    const std::uint64_t run = run_at(text, at, table.length);
    if (!table.seen.test(bit_of(run))) continue;
    const auto found = table.places.find(run);
    if (found == table.places.end()) continue;
    for (const auto& [number, offset] : found->second) {
      const std::string& literal = literals_[number];
      if (offset <= at && text.substr(at - offset).starts_with(literal)) out.push_back(number);
    }
  }
}

void LiteralIndex::candidates(std::string_view text, std::vector<std::size_t>& out) const {
  out.insert(out.end(), always_.begin(), always_.end());
  for (const Table& table : tables_) look_up(table, text, out);
}

std::vector<std::size_t> LiteralIndex::candidates(std::string_view text) const {
  std::vector<std::size_t> out;
  candidates(text, out);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace fewbit
