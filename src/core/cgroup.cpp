// SPDX-License-Identifier: Apache-2.0
#include "core/cgroup.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/text_file.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

std::optional<int> whole_cpus(std::optional<std::int64_t> quota,
                              std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  const std::int64_t whole = *quota / *period;
  return static_cast<int>(std::clamp<std::int64_t>(whole, 1, std::numeric_limits<int>::max()));
}

template <class T>
void tighten(std::optional<T>& limit, std::optional<T> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

bool contains(const std::vector<std::string_view>& parts, std::string_view wanted) {
  return std::find(parts.begin(), parts.end(), wanted) != parts.end();
}

// A mounted hierarchy: `group` in it is shown as the folder `mount_point`.
struct Mount {
  std::string group;
  std::string mount_point;
};

// controller: "cpu", "memory"; empty for the version 2 hierarchy.
std::optional<Mount> find_mount(std::string_view mountinfo, std::string_view controller) {
  for (const std::string_view line : split(mountinfo, "\n")) {
    // id parent device root mount_point options… - type source super_options
    const std::vector<std::string_view> fields = split(line, " ");
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.end() - dash < 4 || dash - fields.begin() < 5) continue;
    const bool found = controller.empty()
                           ? dash[1] == "cgroup2"
                           : dash[1] == "cgroup" && contains(split(dash[3], ","), controller);
    if (found) return Mount{std::string(fields[3]), std::string(fields[4])};
  }
  return std::nullopt;
}

// The process's group in the hierarchy of a controller, from /proc/self/cgroup.
std::optional<std::string> find_group(std::string_view cgroups, std::string_view controller) {
  for (const std::string_view line : split(cgroups, "\n")) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool found =
        controller.empty() ? controllers.empty() : contains(split(controllers, ","), controller);
    if (found) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

// Folders of the process's group and the groups above it that are visible, deepest first.
std::vector<fs::path> group_folders(const fs::path& root, std::string_view controller) {
  const std::string mountinfo = read_kernel_file(root / "proc/self/mountinfo");
  const std::string cgroups = read_kernel_file(root / "proc/self/cgroup");
  const std::optional<Mount> mount = find_mount(mountinfo, controller);
  const std::optional<std::string> group = find_group(cgroups, controller);
  if (!mount || !group) return {};
  // Inside a container the mount may show only the container's own group.
  std::string below = *group;
  if (mount->group != "/" && below.starts_with(mount->group)) below.erase(0, mount->group.size());
  const fs::path top = root / fs::path(mount->mount_point).relative_path();
  std::vector<fs::path> folders;
  fs::path relative = fs::path(below).relative_path();
  for (; !relative.empty(); relative = relative.parent_path()) folders.push_back(top / relative);
  folders.push_back(top);
  return folders;
}

}  // namespace

std::optional<int> quota_cpus_v2(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, " \t\n");
  if (parts.size() != 2) return std::nullopt;
  return whole_cpus(parse_number<std::int64_t>(parts[0]), parse_number<std::int64_t>(parts[1]));
}

std::optional<int> quota_cpus_v1(std::string_view quota, std::string_view period) {
  return whole_cpus(parse_number<std::int64_t>(quota), parse_number<std::int64_t>(period));
}

CgroupLimits read_cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  for (const fs::path& folder : group_folders(root, "")) {
    tighten(limits.cpus, quota_cpus_v2(read_kernel_file(folder / "cpu.max")));
    tighten(limits.memory_bytes,
            parse_number<std::uint64_t>(read_kernel_file(folder / "memory.max")));
  }
  for (const fs::path& folder : group_folders(root, "cpu")) {
    tighten(limits.cpus, quota_cpus_v1(read_kernel_file(folder / "cpu.cfs_quota_us"),
                                       read_kernel_file(folder / "cpu.cfs_period_us")));
  }
  for (const fs::path& folder : group_folders(root, "memory")) {
    tighten(limits.memory_bytes,
            parse_number<std::uint64_t>(read_kernel_file(folder / "memory.limit_in_bytes")));
  }
  return limits;
}

}  // namespace fewbit
