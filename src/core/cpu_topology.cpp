// SPDX-License-Identifier: Apache-2.0
#include "core/cpu_topology.hpp"

#include <sched.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/cgroup.hpp"
#include "core/text_file.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

constexpr int most_cpus = 1 << 16;

// Physical cores among cpus: CPUs of one core name the same siblings.
int count_cores(const fs::path& cpu_folder, std::span<const int> cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const fs::path folder = cpu_folder / ("cpu" + std::to_string(cpu)) / "topology";
    const std::string siblings = read_kernel_file(folder / "thread_siblings_list");
    cores.insert(siblings.empty() ? "cpu" + std::to_string(cpu) : siblings);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

// Bytes of a line such as "MemTotal:  65536 kB" or "Node 0 MemTotal:  65536 kB".
std::uint64_t total_memory(std::string_view meminfo) {
  for (const std::string_view line : split(meminfo, "\n")) {
    const std::vector<std::string_view> words = split(line, " \t");
    const auto key = std::find(words.begin(), words.end(), "MemTotal:");
    if (words.end() - key < 3 || key[2] != "kB") continue;
    return parse_number<std::uint64_t>(key[1]).value_or(0) * 1024U;
  }
  return 0;
}

std::vector<NumaNode> read_nodes(const fs::path& root) {
  const fs::path folder = root / "sys/devices/system/node";
  std::vector<NumaNode> nodes;
  const auto ids = parse_cpu_list(read_kernel_file(folder / "online"));
  for (const int id : ids.value_or(std::vector<int>{})) {
    const fs::path node = folder / ("node" + std::to_string(id));
    nodes.push_back(
        {id, parse_cpu_list(read_kernel_file(node / "cpulist")).value_or(std::vector<int>{}),
         total_memory(read_kernel_file(node / "meminfo"))});
  }
  return nodes;
}

std::vector<int> affinity_of_process() {
  std::vector<int> cpus;
  // The kernel refuses a mask smaller than its own.
  for (int most = CPU_SETSIZE; most <= most_cpus; most *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<std::size_t>(most));
    if (mask == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(most));
    CPU_ZERO_S(bytes, mask);
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    for (int cpu = 0; known && cpu < most; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, mask)) cpus.push_back(cpu);
    }
    CPU_FREE(mask);
    if (known) break;
  }
  return cpus;
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string_view part : split(text, ",\n")) {
    const std::size_t dash = part.find('-');
    const auto first = parse_number<int>(part.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_number<int>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= most_cpus) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

CpuTopology read_topology(const fs::path& root, std::span<const int> affinity) {
  const fs::path cpu_folder = root / "sys/devices/system/cpu";
  CpuTopology topology;
  topology.allowed.assign(affinity.begin(), affinity.end());
  topology.online =
      parse_cpu_list(read_kernel_file(cpu_folder / "online")).value_or(std::vector<int>{});
  if (topology.online.empty()) topology.online = topology.allowed;
  if (topology.allowed.empty()) topology.allowed = topology.online;
  topology.physical_cores = count_cores(cpu_folder, topology.online);
  topology.allowed_cores = count_cores(cpu_folder, topology.allowed);

  const CgroupLimits limits = read_cgroup_limits(root);
  topology.quota = limits.cpus;
  topology.memory_bytes = total_memory(read_kernel_file(root / "proc/meminfo"));
  if (limits.memory_bytes && *limits.memory_bytes < topology.memory_bytes) {
    topology.memory_bytes = *limits.memory_bytes;
  }
  topology.nodes = read_nodes(root);
  return topology;
}

const CpuTopology& cpu_topology() {
  static const CpuTopology topology = read_topology("/", affinity_of_process());
  return topology;
}

int usable_threads(const CpuTopology& topology) {
  const int allowed = std::max(1, static_cast<int>(topology.allowed.size()));
  return std::min({allowed, topology.quota.value_or(allowed), topology.allowed_cores});
}

}  // namespace fewbit
