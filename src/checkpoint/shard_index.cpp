// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checkpoint/json.hpp"
#include "checkpoint/json_text.hpp"
#include "checkpoint/relative_name.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

Error corrupt(std::string what, const std::string& where) {
  return Error{ErrorCode::corrupt, std::move(what), where};
}

// Shard numbers in the order of the names.
std::vector<std::string> number_files(std::map<std::string, std::int32_t>& numbers) {
  std::vector<std::string> files;
  files.reserve(numbers.size());
  for (auto& [file, number] : numbers) {
    number = static_cast<std::int32_t>(files.size());
    files.push_back(file);
  }
  return files;
}

Result<std::string> shard_file(const Json::Member& member, const std::string& where) {
  const std::string* name = member.second.as_string();
  if (name == nullptr) {
    return corrupt(fmt::format("weight_map: expected a file name for {}, found a JSON {}",
                               quote(member.first), member.second.kind()),
                   where);
  }
  if (!stays_below(*name)) {
    return corrupt(fmt::format("weight_map: {} names the file {}, which is not below the folder of "
                               "the index",
                               quote(member.first), quote(*name)),
                   where);
  }
  return std::filesystem::path(*name).lexically_normal().string();
}

// Position of the tensor in the list sorted by name; nullptr when absent.
const TensorInfo* find_tensor(std::span<const TensorInfo> tensors, const std::string& name) {
  const auto at = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorInfo& info, const std::string& key) { return info.name < key; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

void find_unlisted(const ShardIndex& index, std::span<const TensorInfo> tensors,
                   std::vector<Finding>& findings) {
  std::vector<std::vector<std::string>> unlisted(index.files.size());
  auto entry = index.entries.begin();
  for (const TensorInfo& info : tensors) {
    while (entry != index.entries.end() && entry->tensor < info.name) ++entry;
    if (entry == index.entries.end() || entry->tensor != info.name) {
      unlisted[static_cast<std::size_t>(info.shard)].push_back(quote(info.name));
    }
  }
  for (std::size_t i = 0; i < unlisted.size(); ++i) {
    if (unlisted[i].empty()) continue;
    findings.push_back(
        {Level::error, "index-tensor-unlisted", index.files[i],
         fmt::format("{} tensors that the index does not list: {}", unlisted[i].size(),
                     short_list(unlisted[i])),
         "every tensor of a shard in weight_map: loaders that follow it miss these"});
  }
}

void check_total_size(const ShardIndex& index, std::span<const TensorInfo> tensors,
                      const std::string& where, std::vector<Finding>& findings) {
  if (!index.total_size) return;
  std::uint64_t bytes = 0;
  for (const TensorInfo& info : tensors) bytes += info.bytes;
  if (*index.total_size == static_cast<double>(bytes)) return;
  findings.push_back({Level::warning, "index-total-size", where,
                      fmt::format("metadata.total_size {:.0f}", *index.total_size),
                      fmt::format("{}, the bytes of all tensors", bytes)});
}

void read_metadata(const Json& metadata, const std::string& where, ShardIndex& index) {
  if (metadata.is_null()) return;
  if (!metadata.is_object()) {
    index.findings.push_back({Level::warning, "index-metadata", where,
                              fmt::format("metadata is {}", value_text(metadata)),
                              "an object with total_size"});
    return;
  }
  const Json* size = metadata.find("total_size");
  if (size == nullptr || size->is_null()) return;
  const auto number = size->as_double();
  if (number && *number >= 0 && std::floor(*number) == *number) {
    index.total_size = *number;
    return;
  }
  index.findings.push_back({Level::warning, "index-total-size", where,
                            fmt::format("metadata.total_size is {}", value_text(*size)),
                            "a number of bytes: an integer, at least 0"});
}

}  // namespace

std::string short_list(std::span<const std::string> items) {
  constexpr std::size_t shown = 5;
  std::string text = fmt::format("{}", fmt::join(items.first(std::min(shown, items.size())), ", "));
  if (items.size() > shown) text += fmt::format(" and {} more", items.size() - shown);
  return text;
}

Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& where) {
  FEWBIT_TRY(const Json json, Json::parse(text, where));
  const Json* map = json.find("weight_map");
  const Json::Object* members = map != nullptr ? map->as_object() : nullptr;
  if (members == nullptr || members->empty()) {
    return corrupt(
        fmt::format("weight_map: expected an object that maps tensors to files, found {}",
                    map == nullptr       ? "nothing"
                    : members == nullptr ? map->kind()
                                         : "an empty one"),
        where);
  }
  std::map<std::string, std::int32_t> numbers;
  for (const Json::Member& member : *members) {
    FEWBIT_TRY(std::string file, shard_file(member, where));
    numbers.emplace(std::move(file), 0);
  }
  ShardIndex index;
  index.files = number_files(numbers);
  index.entries.reserve(members->size());
  for (const Json::Member& member : *members) {
    FEWBIT_TRY(const std::string file, shard_file(member, where));
    index.entries.push_back({member.first, numbers.at(file)});
  }
  std::sort(index.entries.begin(), index.entries.end(),
            [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
  if (const Json* metadata = json.find("metadata")) read_metadata(*metadata, where, index);
  return index;
}

Result<void> check_against_shards(const ShardIndex& index, std::span<const TensorInfo> tensors,
                                  const std::string& where, std::vector<Finding>& findings) {
  std::vector<std::string> wrong;
  for (const ShardIndex::Entry& entry : index.entries) {
    const TensorInfo* info = find_tensor(tensors, entry.tensor);
    const std::string& promised = index.files[static_cast<std::size_t>(entry.shard)];
    if (info == nullptr) {
      wrong.push_back(fmt::format("{} is not in {}", quote(entry.tensor), quote(promised)));
    } else if (info->shard != entry.shard) {
      wrong.push_back(fmt::format("{} is in {}, not in {}", quote(entry.tensor),
                                  quote(index.files[static_cast<std::size_t>(info->shard)]),
                                  quote(promised)));
    }
  }
  if (!wrong.empty()) {
    return Error{
        ErrorCode::inconsistent,
        fmt::format("index-tensor-missing: {} of {} tensors are not where the index says: {}",
                    wrong.size(), index.entries.size(), short_list(wrong)),
        where};
  }
  findings.insert(findings.end(), index.findings.begin(), index.findings.end());
  find_unlisted(index, tensors, findings);
  check_total_size(index, tensors, where, findings);
  return {};
}

}  // namespace fewbit
