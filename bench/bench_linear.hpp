// SPDX-License-Identifier: Apache-2.0
// Dense layers y = x W^T measured as MoE layers are.
#pragma once

#include "bench/measure.hpp"

namespace fewbit::bench {

// Of a shape with `linear`. Errors: as bench_layer.
Result<LayerBench> bench_linear(const LayerShape& shape, const DeviceInfo& device,
                                const LayerBenchOptions& options, Executor& executor);

}  // namespace fewbit::bench
