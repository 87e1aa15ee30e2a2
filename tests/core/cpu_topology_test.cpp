// SPDX-License-Identifier: Apache-2.0
// Thread counts of described machines: files of /proc and /sys written to a temporary folder.
#include "core/cpu_topology.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "core/cgroup.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

class Topology : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() /
            ("fewbit_topology_" + std::string(test->name()) + "_" + std::to_string(getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  // Core c has the CPUs c and, with two threads a core, c + cores.
  void put_cpus(int cores, int threads_per_core) {
    const int cpus = cores * threads_per_core;
    put("sys/devices/system/cpu/online", "0-" + std::to_string(cpus - 1) + "\n");
    for (int cpu = 0; cpu < cpus; ++cpu) {
      const int core = cpu % cores;
      std::string siblings = std::to_string(core);
      if (threads_per_core == 2) siblings += "," + std::to_string(core + cores);
      put("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          siblings + "\n");
    }
  }
  void put_cgroup_v2(const std::string& group) {
    put("proc/self/cgroup", "0::" + group + "\n");
    put("proc/self/mountinfo",
        "24 30 0:22 / /proc rw,nosuid - proc proc rw\n"
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  static std::vector<int> cpus(int count) {
    std::vector<int> list(static_cast<std::size_t>(count));
    std::iota(list.begin(), list.end(), 0);
    return list;
  }
  int threads(int allowed) { return usable_threads(read_topology(root_, cpus(allowed))); }

  fs::path root_;
};

TEST(CpuList, ReadsRangesAndRefusesTheRest) {
  EXPECT_EQ(parse_cpu_list("0-3,8\n"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), std::vector<int>{5});
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
  for (const char* bad : {"3-1", "a", "1-", "-1", "0-99999999", "1 2"}) {
    EXPECT_EQ(parse_cpu_list(bad), std::nullopt) << bad;
  }
}

TEST(Quota, IsRoundedDownButNeverBelowOne) {
  EXPECT_EQ(quota_cpus_v2("400000 100000\n"), 4);
  EXPECT_EQ(quota_cpus_v2("765000 100000\n"), 7);
  EXPECT_EQ(quota_cpus_v2("50000 100000\n"), 1);
  EXPECT_EQ(quota_cpus_v2("max 100000\n"), std::nullopt);
  EXPECT_EQ(quota_cpus_v2(""), std::nullopt);
  EXPECT_EQ(quota_cpus_v2("100000 0"), std::nullopt);
  EXPECT_EQ(quota_cpus_v1("400000\n", "100000\n"), 4);
  EXPECT_EQ(quota_cpus_v1("765000\n", "100000\n"), 7);
  EXPECT_EQ(quota_cpus_v1("-1\n", "100000\n"), std::nullopt);
  EXPECT_EQ(quota_cpus_v1("", ""), std::nullopt);
}

TEST_F(Topology, QuotaLimitsThreads) {
  put_cpus(16, 1);
  put_cgroup_v2("/");
  put("sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(threads(16), 4);
  put("sys/fs/cgroup/cpu.max", "765000 100000\n");
  EXPECT_EQ(threads(16), 7);
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(threads(16), 16);
}

TEST_F(Topology, AffinityLimitsThreads) {
  put_cpus(8, 1);
  EXPECT_EQ(threads(4), 4);
  EXPECT_EQ(read_topology(root_, cpus(4)).physical_cores, 8);
}

TEST_F(Topology, PhysicalCoresLimitThreads) {
  put_cpus(10, 2);
  EXPECT_EQ(threads(20), 10);
  const CpuTopology topology = read_topology(root_, cpus(20));
  EXPECT_EQ(topology.physical_cores, 10);
  EXPECT_EQ(topology.online.size(), 20U);
  // Both threads of one core are worth one.
  EXPECT_EQ(usable_threads(read_topology(root_, std::vector<int>{3, 13})), 1);
}

TEST_F(Topology, TheTightestGroupAboveCounts) {
  put_cpus(16, 1);
  put_cgroup_v2("/pod/container");
  put("sys/fs/cgroup/pod/cpu.max", "300000 100000\n");
  put("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/pod/memory.max", "1073741824\n");
  put("sys/fs/cgroup/pod/container/memory.max", "max\n");
  put("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
  const CpuTopology topology = read_topology(root_, cpus(16));
  EXPECT_EQ(usable_threads(topology), 3);
  EXPECT_EQ(topology.memory_bytes, 1073741824U);
}

TEST_F(Topology, ReadsVersion1BelowTheGroupThatAContainerSees) {
  put_cpus(16, 1);
  put("proc/self/cgroup",
      "4:memory:/docker/ab\n2:cpu,cpuacct:/docker/ab/inner\n1:name=systemd:/\n");
  put("proc/self/mountinfo",
      "33 32 0:28 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
      "34 32 0:29 /docker/ab /sys/fs/cgroup/memory ro master:2 - cgroup cgroup rw,memory\n");
  put("sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "250000\n");
  put("sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n");
  put("proc/meminfo", "MemTotal: 8192 kB\n");
  const CpuTopology topology = read_topology(root_, cpus(16));
  EXPECT_EQ(topology.quota, 2);
  EXPECT_EQ(topology.memory_bytes, 2097152U);
}

TEST_F(Topology, NodesOfUnequalMemory) {
  put_cpus(4, 1);
  put("sys/devices/system/node/online", "0-1\n");
  put("sys/devices/system/node/node0/cpulist", "0-2\n");
  put("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       65536 kB\n");
  put("sys/devices/system/node/node1/cpulist", "3\n");
  put("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       16384 kB\n");
  const CpuTopology topology = read_topology(root_, cpus(4));
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_EQ(topology.nodes[0].memory_bytes, 65536U * 1024U);
  EXPECT_EQ(topology.nodes[0].cpus, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(topology.nodes[1].memory_bytes, 16384U * 1024U);
  EXPECT_EQ(topology.nodes[1].cpus, std::vector<int>{3});
}

TEST_F(Topology, ASystemThatTellsNothingHasACorePerAllowedCpu) {
  const CpuTopology topology = read_topology(root_, cpus(3));
  EXPECT_EQ(usable_threads(topology), 3);
  EXPECT_EQ(topology.quota, std::nullopt);
  EXPECT_EQ(threads(0), 1);
}

TEST(CpuTopology, OfThisMachineIsConsistent) {
  const CpuTopology& topology = cpu_topology();
  EXPECT_GE(topology.allowed.size(), 1U);
  EXPECT_GE(topology.online.size(), topology.allowed.size());
  EXPECT_GE(topology.physical_cores, topology.allowed_cores);
  EXPECT_GE(usable_threads(topology), 1);
  EXPECT_GT(topology.memory_bytes, 0U);
}

}  // namespace
}  // namespace fewbit
