// SPDX-License-Identifier: Apache-2.0
// What the router beside experts on a device takes, and where it keeps what a call needs: pure
// functions.
#pragma once

#include <cstdint>

#include "backends/cuda_moe/scratch_alignment.hpp"
#include "fewbit/moe.hpp"
#include "kernels/cuda/router.hpp"
#include "select/backend.hpp"

namespace fewbit::cuda {

// Errors: unsupported (sizes that the kernels can't take: both numbers).
Result<void> check_router_sizes(const MoeProblem& problem, const MoeRouter& router);

struct RouterShape {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  bool projects = false;  // logits are made here
};
// Bytes from the beginning of a workspace: RouterState, then these.
struct RouterScratch {
  std::uint64_t logits = 0;   // f32 [tokens, experts] where they are made here
  std::uint64_t ids = 0;      // i32 [tokens, top_k]
  std::uint64_t weights = 0;  // f32 [tokens, top_k]
  std::uint64_t bytes = 0;
};
constexpr RouterScratch router_scratch(const RouterShape& shape, std::int64_t tokens) {
  const auto rows = static_cast<std::uint64_t>(tokens);
  const std::uint64_t routes = rows * static_cast<std::uint64_t>(shape.top_k);
  RouterScratch at;
  at.logits = scratch_aligned(sizeof(RouterState));
  at.ids =
      at.logits +
      (shape.projects ? scratch_aligned(4 * rows * static_cast<std::uint64_t>(shape.experts)) : 0);
  at.weights = at.ids + scratch_aligned(4 * routes);
  at.bytes = at.weights + scratch_aligned(4 * routes);
  return at;
}

// The kernels' words for a router's rules; without pointers.
RouterArgs router_args(const RouterParams& params, std::int64_t experts);

// The error that a fault stands for: which logit of which token has no order. 0: none.
Result<void> check_fault(unsigned long long fault, std::int64_t experts, const std::string& where);

}  // namespace fewbit::cuda
