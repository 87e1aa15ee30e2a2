// SPDX-License-Identifier: Apache-2.0
// The router of a layer, in device memory beside its experts.
#pragma once

#include <string>

#include "backends/cuda_moe/router_plan.hpp"
#include "device/device.hpp"

namespace fewbit::cuda {

class DeviceRouter {
 public:
  static Result<DeviceRouter> create(const MoeProblem& problem, const MoeRouter& router,
                                     const device::Stream& stream);

  // Of a workspace's beginning, aligned to scratch_alignment.
  std::uint64_t bytes(std::int64_t tokens) const { return router_scratch(shape_, tokens).bytes; }

  // Pointers into device memory.
  struct Call {
    std::int64_t tokens = 0;
    const void* x = nullptr;        // [tokens, hidden]
    const float* logits = nullptr;  // or none: by the projection
    std::byte* workspace = nullptr;
    void* stream = nullptr;
  };
  // Puts the logits and zeros on the stream; what comes back is for launch_router.
  Result<RouterArgs> begin(const Call& call) const;

 private:
  RouterShape shape_;
  RouterProjection projection_;  // without x and logits
  RouterArgs args_;
  device::Buffer matrix_, bias_;
  std::string where_;
};

}  // namespace fewbit::cuda
