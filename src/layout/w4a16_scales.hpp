// SPDX-License-Identifier: Apache-2.0
// The scales of one matrix of prepare_w4a16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fewbit/executor.hpp"
#include "fewbit/layouts.hpp"
#include "layout/place.hpp"
#include "layout/row_order.hpp"

namespace fewbit {

struct W4a16ScaleJob {
  W4a16Source source = W4a16Source::modelopt_nvfp4;
  BlockScaleStorage storage = BlockScaleStorage::plain;
  DType activation_dtype = DType::bf16;
  W4a16Factors factors = W4a16Factors::of_all_experts;
  std::int64_t experts = 0;
  std::int64_t k = 0;
  Dims grid;                 // n, groups along k
  RowRotation rows;          // rows.rows == grid.n
  std::int64_t columns = 0;  // of the result, grid.n when 0: zeros pad more of them inside their
                             // blocks, fewer than whole blocks lose the scales of the last one

  std::int64_t out_columns() const { return columns > 0 ? columns : grid.n; }
};

// block_scales as W4a16Matrix has them; out [experts, groups, out_columns()], apart from them or
// the same memory (one expert's scales are then copied aside at a time). Fills the block-scale
// fields of the report. Error limit: the copy can't be had.
Result<W4a16ScaleReport> prepare_block_scales(const W4a16ScaleJob& job,
                                              std::span<const std::byte> block_scales,
                                              std::span<std::byte> out, Executor& executor);

// globals: experts f32, any alignment; report: that of the block scales. Adds the
// global-scale fields to the report.
void prepare_global_scales(const W4a16ScaleJob& job, std::span<const std::byte> globals,
                           std::span<float> out, W4a16ScaleReport& report);

}  // namespace fewbit
