// SPDX-License-Identifier: Apache-2.0
// g_idx of GPTQ-like modules: the group of every column.
#pragma once

#include <cstdint>
#include <vector>

#include "fewbit/tensor.hpp"

namespace fewbit {

struct GroupIndex {
  std::vector<std::int32_t> groups;  // of each column, negative ones counted from the end
  bool in_order = true;              // column j is in group j / group_size
  std::int64_t bad_column = -1;      // first one outside the groups
  std::int32_t bad_value = 0;        // as stored
  std::int64_t uneven_group = -1;    // first one with another number of columns than it should have
  std::int64_t uneven_count = 0;
  std::int64_t uneven_expected = 0;
};
// Whether column j is in group j / group_size, everywhere; the same as in_order below.
bool columns_in_order(const TensorView& g_idx, std::int64_t group_size);
// g_idx i32 [k]. group_size 0 = one group. Past a bad column nothing more is filled in.
GroupIndex read_group_index(const TensorView& g_idx, std::int64_t group_size);

}  // namespace fewbit
