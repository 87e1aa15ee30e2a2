// SPDX-License-Identifier: Apache-2.0
// Act-order in a benchmark on a GPU.
#pragma once

#include "device/device_layer.hpp"
#include "device/random_layer.hpp"
#include "kernels/cuda/order_rows.hpp"

namespace fewbit::cuda {

// What puts the activations of each route in the order of its expert, where there is one.
class Ordering {
 public:
  static Result<Ordering> create(const StreamShape& shape, const device::Stream& stream) {
    Ordering out;
    if (!shape.ordered) return out;
    RandomLayer layer;
    layer.shape = shape;
    add_orders(layer, 9);
    const auto routes = static_cast<std::uint64_t>(shape.tokens * shape.top_k);
    FEWBIT_TRY(out.order_, upload(layer.orders[0], stream));
    FEWBIT_TRY(out.rows_, device::Buffer::allocate(
                              2 * routes * static_cast<std::uint64_t>(shape.hidden_size), stream));
    out.args_ = {.tokens = static_cast<int>(shape.tokens),
                 .top_k = static_cast<int>(shape.top_k),
                 .experts = static_cast<int>(shape.experts),
                 .width = static_cast<int>(shape.hidden_size),
                 .order = out.order_.as<std::int32_t>(),
                 .to = out.rows_.data()};
    return out;
  }
  Result<void> run(MoeF4Args& args, const device::Stream& stream) const {
    if (rows_.size() == 0) return {};
    FEWBIT_TRY(device::check(launch_order_rows(args_, args, stream.handle()), "order_rows"));
    args.x = rows_.data();
    return {};
  }

 private:
  device::Buffer order_, rows_;
  OrderRowsArgs args_;
};

}  // namespace fewbit::cuda
