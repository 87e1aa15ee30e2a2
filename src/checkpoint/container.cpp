// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/container.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>

#include "checkpoint/foreign_content.hpp"
#include "checkpoint/gguf.hpp"
#include "checkpoint/gguf_container.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/shard_index.hpp"
#include "checkpoint/shard_names.hpp"
#include "checkpoint/system_error.hpp"
#include "core/counted.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_name = "model.safetensors.index.json";
constexpr std::string_view single_name = "model.safetensors";
constexpr std::string_view index_end = ".safetensors.index.json";

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Maps every file; all that are missing are named in one error.
Result<void> map_shards(Container& container, const fs::path& named_by) {
  std::vector<std::string> missing;
  for (const fs::path& path : container.paths) {
    auto file = MappedFile::open(path);
    if (file) {
      container.shards.push_back(*std::move(file));
    } else if (file.error().code == ErrorCode::not_found) {
      missing.push_back(quote(path.filename().string()));
    } else {
      return file.error();
    }
  }
  if (missing.empty()) return {};
  return Error{ErrorCode::not_found,
               fmt::format("index-shard-missing: {} of {} shards do not exist: {}", missing.size(),
                           container.paths.size(), short_list(missing)),
               named_by.string()};
}

void merge_metadata(Container& container, const std::map<std::string, std::string>& metadata,
                    const fs::path& path) {
  for (const auto& [key, value] : metadata) {
    const auto [at, added] = container.metadata.emplace(key, value);
    if (added || at->second == value) continue;
    container.findings.push_back({Level::info, "metadata-differs", path.string(),
                                  fmt::format("{} = {}", quote(key), quote(value)),
                                  fmt::format("{}, as in an earlier shard", quote(at->second))});
  }
}

// Reads all headers; tensors end up sorted by name.
Result<void> read_headers(Container& container) {
  for (std::size_t i = 0; i < container.shards.size(); ++i) {
    const MappedFile& file = *container.shards[i];
    FEWBIT_TRY(SafetensorsHeader header, parse_safetensors(file.bytes(), file.path().string()));
    // Pages of the header are not needed any more.
    if (!header.tensors.empty()) file.release(0, header.tensors.front().file_offset);
    for (TensorInfo& info : header.tensors) {
      info.shard = static_cast<std::int32_t>(i);
      container.total_bytes += info.bytes;
      container.tensors.push_back(std::move(info));
    }
    merge_metadata(container, header.metadata, file.path());
  }
  return sort_tensors(container);
}

Result<std::vector<fs::path>> files_with(std::string_view extension, const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (fs::directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at->path().extension() == extension) files.push_back(at->path());
  }
  if (failure) return system_error("list", failure.value(), directory);
  std::sort(files.begin(), files.end());
  return files;
}

// Files that look like weights and are not part of the checkpoint.
Result<void> find_extra_files(Container& container, std::string_view extension = ".safetensors") {
  const std::set<fs::path> used(container.paths.begin(), container.paths.end());
  FEWBIT_TRY(const auto files, files_with(extension, container.directory));
  std::vector<fs::path> all = container.paths;
  for (const fs::path& file : files) {
    if (used.contains(file)) continue;
    all.push_back(file);
    // A GGUF model is chosen among what can be read.
    const std::string problem = extension == ".gguf" ? gguf_problem(file) : "";
    container.findings.push_back(
        {problem.empty() ? Level::info : Level::warning, "extra-file", file.string(),
         problem.empty() ? fmt::format("a {} file that is no part of this checkpoint", extension)
                         : "a file that can't be read: " + problem,
         fmt::format("only its {}; the file is not read",
                     counted(container.paths.size(), "shard"))});
  }
  check_shard_names(all, container.paths.size(), container.findings);
  return {};
}

Result<Container> open_index(const fs::path& path) {
  Container container;
  container.directory = folder_of(path);
  FEWBIT_TRY(const auto file, MappedFile::open(path));
  FEWBIT_TRY(expect_json(file->bytes(), path.string()));
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  FEWBIT_TRY(const ShardIndex index, parse_shard_index(text, path.string()));
  for (const std::string& name : index.files) container.paths.push_back(container.directory / name);
  FEWBIT_TRY(map_shards(container, path));
  FEWBIT_TRY(read_headers(container));
  FEWBIT_TRY(check_against_shards(index, container.tensors, path.string(), container.findings));
  FEWBIT_TRY(find_extra_files(container));
  return container;
}

// A file that a caller names; often a config, where its folder is meant.
Result<Container> open_named_index(const fs::path& path) {
  Result<Container> container = open_index(path);
  if (container || path.filename().string().ends_with(index_end)) return container;
  return Error{container.error().code,
               fmt::format("no index of shards, expected the folder {} instead ({})",
                           quote(folder_of(path).string()), container.error().what),
               container.error().where};
}

Result<Container> open_single(const fs::path& path) {
  Container container;
  container.directory = folder_of(path);
  container.paths.push_back(path);
  FEWBIT_TRY(auto file, MappedFile::open(path));
  container.shards.push_back(std::move(file));
  FEWBIT_TRY(read_headers(container));
  return container;
}

// One of several shards. In a folder without an index the rest of the model is missing; who names
// the file asks for no more than it.
void find_lone_shard(Container& container, bool named) {
  const auto name = parse_shard_name(container.paths.front());
  const std::uint64_t expected = name ? name->count : 1;
  if (expected <= 1) return;
  container.findings.push_back(
      {named ? Level::info : Level::error, "shard-alone", container.paths.front().string(),
       named ? std::string("one shard") : fmt::format("one shard and no {}", index_name),
       fmt::format("{} shards, by the file's name; what the model as a whole needs is not checked",
                   expected)});
}

// A link to nothing stands for a file that is missing, not for none.
bool is_named(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(file, ignored));
}

// The usual index, or the only one beside no usual file: "consolidated.safetensors.index.json" of
// Mistral's own releases. Empty when there is none.
Result<fs::path> find_index(const fs::path& directory) {
  if (is_named(directory / index_name)) return directory / index_name;
  if (is_named(directory / single_name)) return fs::path();
  FEWBIT_TRY(auto files, files_with(".json", directory));
  std::erase_if(
      files, [](const fs::path& file) { return !file.filename().string().ends_with(index_end); });
  return files.size() == 1 ? files.front() : fs::path();
}

Error not_one_file(const std::vector<fs::path>& files, const fs::path& directory) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const fs::path& file : files) names.push_back(quote(file.filename().string()));
  std::vector<Finding> odd;
  check_shard_names(files, files.size(), odd);
  return Error{
      ErrorCode::not_found,
      fmt::format("expected {}, {}, a single .safetensors file or a GGUF model, found {}{}{}",
                  index_name, single_name,
                  files.empty() ? "none" : fmt::format("{}: ", files.size()), short_list(names),
                  odd.empty() ? std::string()
                              : fmt::format("; {}: {}, expected {}", odd.front().rule,
                                            odd.front().found, odd.front().expected)),
      directory.string()};
}

Result<Container> open_directory(const fs::path& directory) {
  FEWBIT_TRY(const fs::path index, find_index(directory));
  if (!index.empty()) return open_index(index);
  FEWBIT_TRY(const auto files, files_with(".safetensors", directory));
  fs::path chosen = directory / single_name;
  if (files.empty()) {
    FEWBIT_TRY(const auto gguf_files, files_with(".gguf", directory));
    if (!gguf_files.empty()) {
      FEWBIT_TRY(chosen, choose_gguf(gguf_files, directory));
      FEWBIT_TRY(Container container, open_gguf(chosen));
      FEWBIT_TRY(find_extra_files(container, ".gguf"));
      return container;
    }
  }
  if (std::find(files.begin(), files.end(), chosen) == files.end()) {
    if (files.size() != 1) {
      return not_one_file(files, directory);
    }
    chosen = files.front();
  }
  FEWBIT_TRY(Container container, open_single(chosen));
  find_lone_shard(container, false);
  FEWBIT_TRY(find_extra_files(container));
  return container;
}

// What loaders of the model read beside its shards: configs, tokenizers, templates, code.
bool is_read_by_loaders(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string extension = file.extension().string();
  if (name.ends_with(".index.json")) return false;  // of other weights
  constexpr std::string_view extensions[] = {".json", ".model", ".tiktoken", ".jinja", ".py"};
  return std::find(std::begin(extensions), std::end(extensions), extension) !=
             std::end(extensions) ||
         name.starts_with("vocab.") || name.starts_with("merges.");
}

// Files beside the shards whose data was not downloaded.
Result<void> find_pointers(Container& container) {
  constexpr std::uintmax_t largest_pointer = 1024;
  std::vector<fs::path> pointers;
  std::error_code failure;
  for (fs::directory_iterator at(container.directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    std::error_code ignored;
    if (!at->is_regular_file(ignored) || at->file_size(ignored) > largest_pointer) continue;
    const auto file = MappedFile::open(at->path());
    if (file && is_lfs_pointer((*file)->bytes())) pointers.push_back(at->path());
  }
  if (failure) return system_error("list", failure.value(), container.directory);
  std::sort(pointers.begin(), pointers.end());
  for (const fs::path& path : pointers) {
    container.findings.push_back({is_read_by_loaders(path) ? Level::warning : Level::info,
                                  "lfs-pointer", path.string(), "a Git LFS pointer",
                                  "the file itself, as `git lfs pull` gets it"});
  }
  return {};
}

// A GGUF file under another name. Whether the file can be read at all is reported by the reader.
bool begins_as_gguf(const fs::path& path) {
  const auto file = MappedFile::open(path);
  return file && is_gguf((*file)->bytes());
}

}  // namespace

Result<void> sort_tensors(Container& container) {
  std::sort(container.tensors.begin(), container.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const auto twin =
      std::adjacent_find(container.tensors.begin(), container.tensors.end(),
                         [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twin == container.tensors.end()) return {};
  const auto file = [&](const TensorInfo& info) {
    return quote(container.paths[static_cast<std::size_t>(info.shard)].filename().string());
  };
  return Error{ErrorCode::inconsistent,
               fmt::format("tensor-twice: {} is in {} and in {}", quote(twin->name), file(*twin),
                           file(*(twin + 1))),
               container.directory.string()};
}

Result<Container> open_container(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (failure) return system_error("open", failure.value(), path);
  if (status.type() == fs::file_type::directory) {
    FEWBIT_TRY(Container container, open_directory(path));
    FEWBIT_TRY(find_pointers(container));
    return container;
  }
  if (path.extension() == ".json") return open_named_index(path);
  if (path.extension() == ".gguf" || begins_as_gguf(path)) return open_gguf(path);
  FEWBIT_TRY(Container container, open_single(path));
  find_lone_shard(container, true);
  check_shard_names(container.paths, 1, container.findings);
  return container;
}

}  // namespace fewbit
