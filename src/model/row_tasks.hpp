// SPDX-License-Identifier: Apache-2.0
// Work on the rows of a matrix, cut into tasks that do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/checked.hpp"
#include "fewbit/executor.hpp"

namespace fewbit {

// Calls fn(row) for every row.
template <class Fn>
void for_each_row(Executor& executor, std::int64_t rows, Fn&& fn) {
  constexpr std::int64_t rows_a_task = 8;
  const auto tasks = static_cast<int>(ceil_div(rows, rows_a_task));
  parallel_for(executor, tasks, [&](int task) {
    const std::int64_t begin = task * rows_a_task;
    const std::int64_t end = std::min(begin + rows_a_task, rows);
    for (std::int64_t row = begin; row < end; ++row) fn(row);
  });
}

}  // namespace fewbit
