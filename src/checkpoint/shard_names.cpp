// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_names.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "core/quote.hpp"

namespace fewbit {
namespace {

// Takes the digits at the end of `text` away; empty when none stand there.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::size_t first = text.size();
  while (first > 0 && text[first - 1] >= '0' && text[first - 1] <= '9') --first;
  if (first == text.size()) return std::nullopt;
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data() + first, text.data() + text.size(), value);
  text = text.substr(0, first);
  const bool large = read.ec == std::errc::result_out_of_range;
  return large ? std::numeric_limits<std::uint64_t>::max() : value;
}

class ShardNames {
 public:
  explicit ShardNames(std::vector<Finding>& findings) : findings_(findings) {}

  void add(const std::filesystem::path& file, Level level) {
    const auto name = parse_shard_name(file);
    if (!name) return;
    const auto report = [&](std::string found, std::string expected) {
      findings_.push_back(
          {level, "shard-number", file.string(), std::move(found), std::move(expected)});
    };
    const auto& [prefix, number, count] = *name;
    if (count == 0 || number > count) {
      report(fmt::format("shard {} of {} by its name", number, count),
             count == 0 ? std::string("a number of shards of at least 1")
                        : fmt::format("a number from 1 to {}", count));
    }
    const std::string own = file.filename().string();
    Set& set = sets_.try_emplace(prefix, Set{count, own}).first->second;
    if (count != set.count && !std::exchange(set.differs, true)) {
      report(fmt::format("{} shards by the name {}", count, quote(own)),
             fmt::format("{}, as {} says", set.count, quote(set.file)));
    }
    set.zero = set.zero || number == 0;
    set.last = set.last || number == count;
    if (set.zero && set.last && count > 0 && !std::exchange(set.both, true)) {
      report(fmt::format("shards 0 and {} of {}", count, count),
             fmt::format("numbers from 1 to {}", count));
    }
  }

 private:
  struct Set {
    std::uint64_t count = 0;
    std::string file;
    bool zero = false;
    bool last = false;
    bool differs = false;
    bool both = false;
  };
  std::vector<Finding>& findings_;
  std::map<std::string, Set> sets_;  // by prefix
};

}  // namespace

std::optional<ShardName> parse_shard_name(const std::filesystem::path& file) {
  const std::string stem = file.stem().string();
  std::string_view rest = stem;
  const auto count = take_number(rest);
  constexpr std::string_view of = "-of-";
  if (!count || !rest.ends_with(of)) return std::nullopt;
  rest.remove_suffix(of.size());
  const auto number = take_number(rest);
  if (!number) return std::nullopt;
  return ShardName{std::string(rest), *number, *count};
}

void check_shard_names(std::span<const std::filesystem::path> files, std::size_t used,
                       std::vector<Finding>& findings) {
  ShardNames names(findings);
  for (std::size_t i = 0; i < files.size(); ++i) {
    names.add(files[i], i < used ? Level::warning : Level::info);
  }
}

}  // namespace fewbit
