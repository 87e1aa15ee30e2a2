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

// The group of column j; negative ones are counted from the end.
struct Column {
  std::int32_t stored = 0;
  std::int64_t group = 0;
};

struct Columns {
  Columns(const TensorView& g_idx, std::int64_t group_size)
      : bytes(g_idx.bytes.data()),
        k(static_cast<std::int64_t>(g_idx.bytes.size() / sizeof(std::int32_t))),
        size(group_size <= 0 ? std::max<std::int64_t>(k, 1) : group_size),
        groups(ceil_div(k, size)) {}

  Column at(std::int64_t j) const {
    Column column;
    std::memcpy(&column.stored, bytes + static_cast<std::size_t>(j) * sizeof(column.stored),
                sizeof(column.stored));
    column.group = column.stored < 0 ? column.stored + groups : column.stored;
    return column;
  }

  const std::byte* bytes;
  std::int64_t k;
  std::int64_t size;
  std::int64_t groups;
};

}  // namespace

bool columns_in_order(const TensorView& g_idx, std::int64_t group_size) {
  const Columns columns(g_idx, group_size);
  for (std::int64_t j = 0; j < columns.k; ++j) {
    if (columns.at(j).group != j / columns.size) return false;
  }
  return true;
}

GroupIndex read_group_index(const TensorView& g_idx, std::int64_t group_size) {
  GroupIndex index;
  const Columns columns(g_idx, group_size);
  index.groups.resize(static_cast<std::size_t>(columns.k));
  for (std::int64_t j = 0; j < columns.k; ++j) {
    const Column column = columns.at(j);
    if (column.group < 0 || column.group >= columns.groups) {
      index.bad_column = j;
      index.bad_value = column.stored;
      index.in_order = false;
      return index;
    }
    index.groups[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(column.group);
    index.in_order = index.in_order && column.group == j / columns.size;
  }
  if (!index.in_order) count_columns(index, columns.k, columns.groups, columns.size);
  return index;
}

}  // namespace fewbit
