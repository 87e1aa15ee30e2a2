// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_container.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "checkpoint/gguf.hpp"
#include "checkpoint/shard_index.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view extension = ".gguf";
constexpr std::size_t digits = 5;

// The five digits at `at` as a number of at least 1.
std::optional<std::uint64_t> five_digits(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && text.size() == digits && value >= 1 ? std::optional(value) : std::nullopt;
}

struct Part {
  std::shared_ptr<const MappedFile> file;
  GgufHeader header;
};

Result<std::vector<Part>> open_parts(const std::vector<fs::path>& paths) {
  std::vector<Part> parts;
  std::vector<std::string> missing;
  for (const fs::path& path : paths) {
    auto file = MappedFile::open(path);
    if (!file && file.error().code == ErrorCode::not_found && paths.size() > 1) {
      missing.push_back(quote(path.filename().string()));
      continue;
    }
    if (!file) return file.error();
    FEWBIT_TRY(GgufHeader header, parse_gguf((*file)->bytes(), path.string()));
    parts.push_back({*std::move(file), std::move(header)});
  }
  if (missing.empty()) return parts;
  return Error{ErrorCode::not_found,
               fmt::format("split-part-missing: {} of {} parts do not exist: {}", missing.size(),
                           paths.size(), short_list(missing)),
               paths.front().parent_path().string()};
}

// A value that must be `expected`, where it is given.
Result<void> check_number(const Part& part, std::string_view key, std::uint64_t expected,
                          std::string_view because) {
  const GgufValue* value = part.header.metadata.find(key);
  if (value == nullptr) return {};
  const auto number = value->as_int64();
  if (number && *number >= 0 && static_cast<std::uint64_t>(*number) == expected) return {};
  return Error{
      ErrorCode::inconsistent,
      fmt::format("split: {} is {}, expected {}, {}", key, value->text(), expected, because),
      part.file->path().string()};
}

Result<void> check_parts(const std::vector<Part>& parts) {
  std::uint64_t tensors = 0;
  for (const Part& part : parts) tensors += part.header.tensors.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts.size() > 1) {
      FEWBIT_TRY(check_number(parts[i], "split.no", i, "by the file's name"));
    }
    const GgufValue* count = parts[i].header.metadata.find("split.count");
    const bool single = count != nullptr && count->as_int64() == 0;  // written for unsplit files
    if (!single) {
      FEWBIT_TRY(check_number(parts[i], "split.count", parts.size(), "by the file's name"));
    }
    FEWBIT_TRY(check_number(parts[i], "split.tensors.count", tensors, "the tensors of all parts"));
  }
  return {};
}

void add_part(Container& container, Part part) {
  const auto shard = static_cast<std::int32_t>(container.shards.size());
  for (TensorInfo& info : part.header.tensors) {
    info.shard = shard;
    container.total_bytes += info.bytes;
    container.tensors.push_back(std::move(info));
  }
  std::move(part.header.findings.begin(), part.header.findings.end(),
            std::back_inserter(container.findings));
  container.shards.push_back(std::move(part.file));
}

// The metadata of the first part, which alone is complete.
void adopt_metadata(Container& container, Part& first) {
  auto metadata = std::make_shared<GgufMetadata>(std::move(first.header.metadata));
  metadata->keep(first.file);
  for (const GgufMetadata::Entry& entry : metadata->entries()) {
    if (!entry.value.is_array()) container.metadata.emplace(entry.key, entry.value.text());
  }
  container.gguf = std::move(metadata);
}

// What stands beside a model for images or sounds: "mmproj-F16.gguf", `clip` by its metadata. The
// name says it of a file that can't be read.
enum class InFolder { model, projector, unreadable };
InFolder kind_of(const fs::path& path) {
  const auto file = MappedFile::open(path);
  const bool named = path.filename().string().find("mmproj") != std::string::npos;
  if (file && is_gguf((*file)->bytes())) {
    const auto header = parse_gguf((*file)->bytes(), path.string());
    if (header) {
      return header->metadata.architecture() == "clip" ? InFolder::projector : InFolder::model;
    }
  }
  return named ? InFolder::projector : InFolder::unreadable;
}

}  // namespace

std::optional<GgufSplitName> parse_gguf_split_name(const std::string& file_name) {
  std::string_view rest = file_name;
  if (!rest.ends_with(extension)) return std::nullopt;
  rest.remove_suffix(extension.size());
  constexpr std::string_view of = "-of-";
  if (rest.size() < digits + of.size() + digits + 1) return std::nullopt;
  const auto count = five_digits(rest.substr(rest.size() - digits));
  rest.remove_suffix(digits);
  if (!count || !rest.ends_with(of)) return std::nullopt;
  rest.remove_suffix(of.size());
  const auto number = five_digits(rest.substr(rest.size() - digits));
  rest.remove_suffix(digits);
  if (!number || *number > *count || !rest.ends_with('-')) return std::nullopt;
  rest.remove_suffix(1);
  return GgufSplitName{std::string(rest), *number, *count};
}

std::string gguf_split_file_name(const GgufSplitName& name) {
  return fmt::format("{}-{:05}-of-{:05}{}", name.prefix, name.number, name.count, extension);
}

Result<Container> open_gguf(const fs::path& path) {
  Container container;
  container.directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const auto split = parse_gguf_split_name(path.filename().string());
  if (split) {
    for (std::uint64_t number = 1; number <= split->count; ++number) {
      container.paths.push_back(container.directory /
                                gguf_split_file_name({split->prefix, number, split->count}));
    }
  } else {
    container.paths.push_back(path);
  }
  FEWBIT_TRY(std::vector<Part> parts, open_parts(container.paths));
  FEWBIT_TRY(check_parts(parts));
  adopt_metadata(container, parts.front());
  for (Part& part : parts) add_part(container, std::move(part));
  FEWBIT_TRY(sort_tensors(container));
  return container;
}

Result<fs::path> choose_gguf(const std::vector<fs::path>& files, const fs::path& directory) {
  std::set<std::string> models;  // a split set counts once, by its first part
  std::vector<std::string> names;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    auto split = parse_gguf_split_name(name);
    if (split) split->number = 1;
    models.insert(split ? gguf_split_file_name(*split) : name);
    names.push_back(quote(name));
  }
  if (models.size() == 1) return directory / *models.begin();
  std::map<InFolder, std::vector<std::string>> kinds;
  for (const std::string& name : models) kinds[kind_of(directory / name)].push_back(name);
  const auto& whole = kinds[InFolder::model];
  if (whole.size() + kinds[InFolder::unreadable].size() == 1) {
    return directory / (whole.empty() ? kinds[InFolder::unreadable] : whole).front();
  }
  const std::size_t projectors = kinds[InFolder::projector].size();
  const std::size_t unreadable = kinds[InFolder::unreadable].size();
  return Error{
      ErrorCode::not_found,
      fmt::format("{} GGUF model{}{}{} in one folder, name the file to open: {}", whole.size(),
                  whole.size() == 1 ? "" : "s",
                  projectors > 0 ? fmt::format(", {} projectors (mmproj)", projectors) : "",
                  unreadable > 0 ? fmt::format(", {} files that can't be read", unreadable) : "",
                  short_list(names)),
      directory.string()};
}

std::string gguf_problem(const fs::path& path) {
  const auto file = MappedFile::open(path);
  if (!file) return file.error().what;
  const auto header = parse_gguf((*file)->bytes(), path.string());
  return header ? "" : header.error().what;
}

}  // namespace fewbit
