// SPDX-License-Identifier: Apache-2.0
// Which CPUs this process may use, and how many threads that is worth.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace fewbit {

// "0-3,8" gives 0 1 2 3 8; empty when it can't be read.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;
  std::uint64_t memory_bytes = 0;
};

struct CpuTopology {
  std::vector<int> online;         // CPUs of the machine
  std::vector<int> allowed;        // those of the affinity mask
  int physical_cores = 1;          // of the machine
  int allowed_cores = 1;           // physical cores with at least one allowed CPU
  std::optional<int> quota;        // whole CPUs that the control group grants; empty: no limit
  std::uint64_t memory_bytes = 0;  // of the machine, or the control group's limit when smaller
  std::vector<NumaNode> nodes;     // by id; empty when the system doesn't tell
};

// root: "/" for this machine. affinity: the CPUs of the affinity mask. What /sys doesn't tell is
// taken as one core a CPU.
CpuTopology read_topology(const std::filesystem::path& root, std::span<const int> affinity);
// Of this process, read at the first call.
const CpuTopology& cpu_topology();

// min(affinity, quota rounded down, physical cores), at least 1. Threads above the quota are
// throttled together, threads above the cores wait for each other.
int usable_threads(const CpuTopology& topology);

}  // namespace fewbit
