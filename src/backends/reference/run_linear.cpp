// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "backends/reference/prepared.hpp"
#include "backends/reference/rounding.hpp"
#include "core/convert.hpp"

namespace fewbit::reference {

// y[token, row] = sum over k of x[token, k] * w[row, k] in double, rounded once.
Result<void> ReferenceLinear::run(const LinearArgs& args, Executor& executor) const {
  Carver carver(args.workspace);
  const LinearScratch scratch = carve(problem_, args.tokens, carver);
  FEWBIT_TRY(convert_to_f32(args.x.dtype, args.x.bytes, scratch.x));
  const auto k = static_cast<std::size_t>(problem_.k);
  std::atomic<bool> failed = false;
  parallel_for(executor, tasks, [&](int task) {
    const Range range = rows_of_task(problem_.n, task);
    const auto w = scratch.rows.subspan(static_cast<std::size_t>(task) * k, k);
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      if (!weight_.read(row, w)) failed.store(true, std::memory_order_relaxed);
      for (std::int64_t token = 0; token < args.tokens; ++token) {
        const auto x = scratch.x.subspan(static_cast<std::size_t>(token) * k, k);
        store_rounded(problem_.output_dtype, args.y.data(), token * problem_.n + row,
                      dot(x, w) * weight_.global());
      }
    }
  });
  if (failed) return unreadable_row(problem_.where);
  return {};
}

}  // namespace fewbit::reference
