// SPDX-License-Identifier: Apache-2.0
#include "scheme/source_errors.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace fewbit {
namespace {

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

std::vector<Finding> errors_of(std::span<const Finding> findings) {
  std::vector<Finding> errors;
  std::ranges::copy_if(findings, std::back_inserter(errors),
                       [](const Finding& finding) { return finding.level == Level::error; });
  return errors;
}

std::vector<Finding> problems_of(std::span<const Finding> findings) {
  std::vector<Finding> problems;
  std::ranges::copy_if(findings, std::back_inserter(problems),
                       [](const Finding& finding) { return finding.level != Level::info; });
  return problems;
}

Result<std::vector<Finding>> source_findings(const Checkpoint& source, const Identified& identified,
                                             const ValidationProgress& progress) {
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
  std::vector<Finding> all(source.findings().begin(), source.findings().end());
  std::ranges::copy(identified.findings, std::back_inserter(all));
  std::ranges::copy(found, std::back_inserter(all));
  return all;
}

Result<std::vector<Finding>> source_errors(const Checkpoint& source, const Identified& identified,
                                           const ValidationProgress& progress) {
  FEWBIT_TRY(const std::vector<Finding> all, source_findings(source, identified, progress));
  return errors_of(all);
}

}  // namespace fewbit
