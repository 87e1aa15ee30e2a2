// SPDX-License-Identifier: Apache-2.0
// MoE layers with their arguments in CUDA memory: one graph holds a call on every layer.
#pragma once

#include <span>
#include <vector>

#include "bench/measure.hpp"

namespace fewbit::bench {

struct DeviceCalls {
  std::span<const MoeLayer> layers;
  std::int64_t tokens = 0;
  TensorView hidden;                           // bf16, on the host
  std::vector<std::vector<std::int32_t>> ids;  // of each layer
  std::vector<std::vector<float>> logits;      // likewise, in place of ids for layers with a router
  std::span<const float> router_weights;
};
struct DeviceTime {
  double seconds = 0;  // of a call: the median replay divided by the layers
  int calls = 0;
};
Result<DeviceTime> time_on_device(const DeviceCalls& calls, double budget, Executor& executor);

// Bytes a second that a copy on the device reads and writes; its multiply-adds aren't measured.
Result<MachineLimits> device_limits();

}  // namespace fewbit::bench
