// SPDX-License-Identifier: Apache-2.0
// How the grouped MoE kernels run a call: a pure function of sizes and of the card.
#pragma once

#include "backends/cuda_moe/plan.hpp"

namespace fewbit::cuda {

// Errors: unsupported (sizes that the kernels can't take: both numbers), limit (scratch).
// item_rows: what a benchmark may set, 32, 64 or 128; 0: by the shape.
Result<GroupedPlan> plan_grouped(const StreamShape& shape, const StreamCard& card,
                                 int item_rows = 0);

// Rows that an item has at most.
int grouped_item_width(const StreamShape& shape);

// Whether a call goes to the grouped kernels rather than to the streaming one: they can run it, and
// are faster, as measured on an H200.
bool runs_grouped(const StreamShape& shape);

}  // namespace fewbit::cuda
