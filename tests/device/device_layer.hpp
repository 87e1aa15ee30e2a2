// SPDX-License-Identifier: Apache-2.0
// A MoE layer in device memory, prepared by our own kernels, with what a run needs.
#pragma once

#include <algorithm>
#include <vector>

#include "backends/cuda_moe/plan.hpp"
#include "device/device.hpp"
#include "kernels/cuda/pack_f4.hpp"
#include "layout/cuda_f4_cells.hpp"

namespace fewbit::cuda {

inline std::int64_t packed_bytes(F4Format format, Dims half) {
  return format == F4Format::e4m3_k16 ? CudaF4Cells<16>::bytes(half) : CudaF4Cells<32>::bytes(half);
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

template <class T>
Result<device::Buffer> upload(const std::vector<T>& values, const device::Stream& stream) {
  FEWBIT_TRY(device::Buffer buffer, device::Buffer::allocate(values.size() * sizeof(T), stream));
  FEWBIT_TRY(device::copy_to_device(buffer.data(), bytes_of(values), stream));
  FEWBIT_TRY(stream.synchronize());
  return buffer;
}

// Packed matrices and global scales of a layer.
struct DeviceWeights {
  device::Buffer w13, w2, global13, global2, bias13, bias2;
};

// Rows of gate, up and down in host memory; a stride of 0 takes one expert's for all of them.
struct HostExperts {
  const std::vector<std::uint8_t>* codes;   // [3]
  const std::vector<std::uint8_t>* scales;  // [3]
  const std::vector<float>* globals;        // [experts, 3]
  bool same_for_all = false;
  const std::vector<float>* biases = nullptr;  // [3] or none
};

// Biases of the halves of fc1 side by side for each expert.
inline std::vector<float> bias_of_halves(const StreamShape& shape, const std::vector<float>* from) {
  if (!shape.gated) return from[1];
  std::vector<float> out;
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    for (int m = 0; m < 2; ++m) {
      const auto begin = from[m].begin() + e * shape.intermediate_size;
      out.insert(out.end(), begin, begin + shape.intermediate_size);
    }
  }
  return out;
}

inline Result<DeviceWeights> prepare_weights(F4Format format, const StreamShape& shape,
                                             const HostExperts& host,
                                             const device::Stream& stream) {
  const std::int64_t group = format == F4Format::e4m3_k16 ? 16 : 32;
  const Dims half1 = {.n = shape.rows1(), .k = shape.hidden_size};
  const Dims half2 = {.n = shape.hidden_size / 2, .k = shape.intermediate_size};
  DeviceWeights weights;
  std::vector<float> global13;
  std::vector<float> global2;
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    const float* g = host.globals->data() + 3 * e;
    for (int m = 0; m < 2; ++m) {
      global13.push_back(g[shape.gated ? m : 1] * f4_global_factor(format));
    }
    global2.push_back(g[2] * f4_global_factor(format));
  }
  if (host.biases != nullptr && !host.biases[2].empty()) {
    FEWBIT_TRY(weights.bias13, upload(bias_of_halves(shape, host.biases), stream));
    FEWBIT_TRY(weights.bias2, upload(host.biases[2], stream));
  }
  FEWBIT_TRY(weights.global13, upload(global13, stream));
  FEWBIT_TRY(weights.global2, upload(global2, stream));
  device::Buffer codes[3];
  device::Buffer scales[3];
  for (int m = 0; m < 3; ++m) {
    FEWBIT_TRY(codes[m], upload(host.codes[m], stream));
    FEWBIT_TRY(scales[m], upload(host.scales[m], stream));
  }
  const auto bytes = [&](Dims half) {
    return static_cast<std::uint64_t>(shape.experts * packed_bytes(format, half));
  };
  FEWBIT_TRY(weights.w13, device::Buffer::allocate(bytes(half1), stream));
  FEWBIT_TRY(weights.w2, device::Buffer::allocate(bytes(half2), stream));
  for (int matrix = 0; matrix < 2; ++matrix) {
    const Dims half = matrix == 0 ? half1 : half2;
    PackF4Args args;
    args.count = static_cast<int>(shape.experts);
    args.rows = static_cast<int>(half.n);
    args.depth = static_cast<int>(half.k);
    for (int h = 0; h < 2; ++h) {
      const bool one_matrix = matrix == 1 || !shape.gated;
      const int source = matrix == 1 ? 2 : shape.gated ? h : 1;
      const std::int64_t row = one_matrix ? h * half.n : 0;
      args.codes[h] = codes[source].as<std::uint8_t>() + row * (half.k / 2);
      args.scales[h] = scales[source].as<std::uint8_t>() + row * (half.k / group);
    }
    const std::int64_t expert_rows = matrix == 1 || !shape.gated ? 2 * half.n : half.n;
    const std::int64_t stride = host.same_for_all ? 0 : expert_rows;
    args.codes_stride = stride * (half.k / 2);
    args.scales_stride = stride * (half.k / group);
    args.to = (matrix == 0 ? weights.w13 : weights.w2).as<std::uint8_t>();
    FEWBIT_TRY(device::check(launch_pack_f4(format, args, stream.handle()), "packing weights"));
  }
  FEWBIT_TRY(stream.synchronize());
  return weights;
}

// Inputs, outputs and scratch of calls of one shape. Scratch and output begin as NaN.
struct DeviceCall {
  StreamPlan plan;
  MoeF4Rule rule;
  device::Buffer x, ids, weights, map, out, activated, products, counters;

  MoeF4Args args(const DeviceWeights& w) const {
    MoeF4Args a;
    a.rule = rule;
    a.bias13 = w.bias13.as<float>();
    a.bias2 = w.bias2.as<float>();
    a.expert_map = map.as<std::int32_t>();
    a.map_size = static_cast<int>(map.size() / 4);
    a.w13 = w.w13.as<std::uint8_t>();
    a.w2 = w.w2.as<std::uint8_t>();
    a.global13 = w.global13.as<float>();
    a.global2 = w.global2.as<float>();
    a.x = x.data();
    a.topk_ids = ids.as<std::int32_t>();
    a.topk_weights = weights.as<float>();
    a.out = out.data();
    a.activated = activated.data();
    a.products = products.as<float>();
    a.counters = counters.as<std::uint32_t>();
    return a;
  }
};

struct HostCall {
  const std::vector<std::uint16_t>* x;
  const std::vector<std::int32_t>* ids;
  const std::vector<float>* weights;
  MoeF4Rule rule = {};
  const std::vector<std::int32_t>* map = nullptr;
};

inline Result<DeviceCall> make_call(const StreamPlan& plan, const HostCall& host,
                                    const device::Stream& stream) {
  DeviceCall call;
  call.plan = plan;
  call.rule = host.rule;
  if (host.map != nullptr) {
    FEWBIT_TRY(call.map, upload(*host.map, stream));
  }
  FEWBIT_TRY(call.x, upload(*host.x, stream));
  FEWBIT_TRY(call.ids, upload(*host.ids, stream));
  FEWBIT_TRY(call.weights, upload(*host.weights, stream));
  const auto routes =
      static_cast<std::uint64_t>(plan.tokens) * static_cast<std::uint64_t>(plan.top_k);
  const auto hidden = static_cast<std::uint64_t>(plan.fc1.depth);
  const auto inner = static_cast<std::uint64_t>(plan.fc2.depth);
  FEWBIT_TRY(call.out, device::Buffer::allocate(
                           2 * static_cast<std::uint64_t>(plan.tokens) * hidden, stream));
  FEWBIT_TRY(call.activated, device::Buffer::allocate(2 * routes * inner, stream));
  FEWBIT_TRY(call.products, device::Buffer::allocate(4 * routes * hidden, stream));
  FEWBIT_TRY(call.counters,
             device::Buffer::allocate(4 * static_cast<std::uint64_t>(plan.counters), stream));
  for (device::Buffer* b : {&call.out, &call.activated, &call.products}) {
    FEWBIT_TRY(device::fill(b->data(), 0xFF, b->size(), stream));
  }
  FEWBIT_TRY(device::fill(call.counters.data(), 0, call.counters.size(), stream));
  FEWBIT_TRY(stream.synchronize());
  return call;
}

inline StreamCard card_of(const DeviceInfo& info) {
  return {.sm_count = info.sm_count, .shared_memory_bytes = info.shared_memory_bytes};
}

}  // namespace fewbit::cuda
