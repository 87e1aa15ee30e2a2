// SPDX-License-Identifier: Apache-2.0
#include "prepared/check_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "scheme/validation.hpp"

namespace fewbit {
namespace {

constexpr std::size_t most_shown = 4;

void add_errors(std::vector<Finding>& errors, std::span<const Finding> findings) {
  std::ranges::copy_if(findings, std::back_inserter(errors),
                       [](const Finding& finding) { return finding.level == Level::error; });
}

std::string text_of(const Finding& finding) {
  const std::string expected =
      finding.expected.empty() ? "" : fmt::format("; expected {}", finding.expected);
  return fmt::format("\n  {}  {}: found {}{}", finding.rule, finding.where, finding.found,
                     expected);
}

// From the first to the last byte of a module in each shard, as far as it was mapped.
void release(const Checkpoint& source, const Module& module) {
  std::map<int, TensorInfo> ranges;
  for (const Module::Part& part : module.parts) {
    const TensorInfo* info = source.find(part.tensor);
    if (info == nullptr) continue;
    const auto [at, first] = ranges.emplace(info->shard, *info);
    TensorInfo& range = at->second;
    const std::uint64_t end =
        std::max(range.file_offset + range.bytes, info->file_offset + info->bytes);
    range.file_offset = std::min(range.file_offset, info->file_offset);
    range.bytes = end - range.file_offset;
  }
  for (const auto& [shard, range] : ranges) source.release(range);
}

}  // namespace

Result<void> check_source(const Checkpoint& source, const Identified& identified,
                          const ProgressFn& progress) {
  bool stopped = false;
  const std::vector<Finding> found =
      validate(source, identified, Depth::scales, [&](std::uint64_t done, std::uint64_t total) {
        // What was read of the module before.
        if (done > 0) release(source, identified.modules[done - 1]);
        stopped = progress && !progress(done, total);
        return !stopped;
      });
  if (stopped) {
    return Error{ErrorCode::cancelled, "stopped while the source was checked",
                 source.directory().string()};
  }
  std::vector<Finding> errors;
  add_errors(errors, source.findings());
  add_errors(errors, identified.findings);
  add_errors(errors, found);
  if (errors.empty()) return {};
  std::string text =
      fmt::format("{} error{} in the source:", errors.size(), errors.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < std::min(errors.size(), most_shown); ++i) {
    text += text_of(errors[i]);
  }
  if (errors.size() > most_shown) {
    text += fmt::format("\n  and {} more: fewbit check", errors.size() - most_shown);
  }
  return Error{ErrorCode::inconsistent, std::move(text), source.directory().string()};
}

}  // namespace fewbit
