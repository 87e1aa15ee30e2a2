// SPDX-License-Identifier: Apache-2.0
// Limits that Linux control groups, version 1 and 2, put on this process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace fewbit {

// Whole CPUs that a quota grants, a fraction rounded down, at least 1; empty: no limit.
// text: cpu.max of version 2, "400000 100000" or "max 100000".
std::optional<int> quota_cpus_v2(std::string_view text);
// quota, period: cpu.cfs_quota_us and cpu.cfs_period_us of version 1; a quota of -1 is no limit.
std::optional<int> quota_cpus_v1(std::string_view quota, std::string_view period);

struct CgroupLimits {
  std::optional<int> cpus;  // see quota_cpus_v2
  std::optional<std::uint64_t> memory_bytes;
};

// The tightest limits of the process's groups and the groups above them. Files are read below
// `root`, "/" for this machine; what can't be read limits nothing.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root);

}  // namespace fewbit
