// SPDX-License-Identifier: Apache-2.0
// How the grouped MoE kernels run a call: a pure function of sizes and of the card.
#pragma once

#include "backends/cuda_moe/plan.hpp"

namespace fewbit::cuda {

// Errors: unsupported (sizes that the kernels can't take: both numbers), limit (scratch).
// item_rows: what a benchmark may set, 32, 48, 64 or 128; 0: by the shape.
Result<GroupedPlan> plan_grouped(const StreamShape& shape, const StreamCard& card,
                                 int item_rows = 0);

// Whether a call goes to the grouped kernels rather than to the streaming one, where both can run
// it: as measured on an H200.
bool grouped_is_faster(const StreamShape& shape);

}  // namespace fewbit::cuda
