// SPDX-License-Identifier: Apache-2.0
// Act-order: activations in the order of an expert's columns, a row for every route.
//
//   to[route][i] = x[route / top_k][order[expert of the route][i]]
//
// Rows of routes that no expert has are left as they are.
#pragma once

#include <cstdint>

#include "kernels/cuda/moe_f4.hpp"

namespace fewbit::cuda {

// Device pointers, 16-byte aligned.
struct OrderRowsArgs {
  int tokens = 0;
  int top_k = 0;
  int experts = 0;
  int width = 0;                        // a multiple of 8
  const std::int32_t* order = nullptr;  // [experts, width], each a permutation
  void* to = nullptr;                   // 16 bits, [tokens * top_k, width]
};

// Of args, x and what tells the expert of a route are used. Returns a cudaError_t.
int launch_order_rows(const OrderRowsArgs& rows, const MoeF4Args& args, void* stream);

}  // namespace fewbit::cuda
