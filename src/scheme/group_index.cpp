// SPDX-License-Identifier: Apache-2.0
#include "scheme/group_index.hpp"

#include <algorithm>
#include <cstring>

#include "core/checked.hpp"

namespace fewbit {
namespace {

void count_columns(GroupIndex& index, std::int64_t k, std::int64_t groups, std::int64_t size) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(groups));
  for (const std::int32_t group : index.groups) ++counts[static_cast<std::size_t>(group)];
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t expected = std::min(size, k - g * size);
    const std::int64_t count = counts[static_cast<std::size_t>(g)];
    if (count == expected) continue;
    index.uneven_group = g;
    index.uneven_count = count;
    index.uneven_expected = expected;
    return;
  }
}

}  // namespace

GroupIndex read_group_index(const TensorView& g_idx, std::int64_t group_size) {
  GroupIndex index;
  const std::size_t columns = g_idx.bytes.size() / sizeof(std::int32_t);
  const auto k = static_cast<std::int64_t>(columns);
  if (k == 0) return index;
  const std::int64_t size = group_size <= 0 ? k : group_size;
  const std::int64_t groups = ceil_div(k, size);
  index.groups.resize(columns);
  for (std::size_t j = 0; j < columns; ++j) {
    std::int32_t stored = 0;
    std::memcpy(&stored, g_idx.bytes.data() + j * sizeof(stored), sizeof(stored));
    const std::int64_t group = stored < 0 ? stored + groups : stored;
    if (group < 0 || group >= groups) {
      index.bad_column = static_cast<std::int64_t>(j);
      index.bad_value = stored;
      index.in_order = false;
      return index;
    }
    index.groups[j] = static_cast<std::int32_t>(group);
    index.in_order = index.in_order && group == static_cast<std::int64_t>(j) / size;
  }
  if (!index.in_order) count_columns(index, k, groups, size);
  return index;
}

}  // namespace fewbit
