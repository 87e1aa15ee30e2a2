// SPDX-License-Identifier: Apache-2.0
// A MoE layer in device memory, prepared by our own kernels, with what a run needs.
#pragma once

#include <algorithm>
#include <vector>

#include "backends/cuda_moe/plan.hpp"
#include "backends/cuda_moe/weight_cells.hpp"
#include "device/device.hpp"
#include "kernels/cuda/pack_f4.hpp"

namespace fewbit::cuda {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

template <class T>
Result<device::Buffer> upload(const std::vector<T>& values, const device::Stream& stream) {
  FEWBIT_TRY(device::Buffer buffer, device::copy_of(values, stream));
  FEWBIT_TRY(stream.synchronize());
  return buffer;
}

// Packed matrices and global scales of a layer.
struct DeviceWeights {
  device::Buffer w13, w2, global13, global2, rows13, rows2, bias13, bias2;
};

// Rows of gate, up and down in host memory; a stride of 0 takes one expert's for all of them.
struct HostExperts {
  const std::vector<std::uint8_t>* codes;   // [3]
  const std::vector<std::uint8_t>* scales;  // [3]
  const std::vector<float>* globals;        // [experts, 3]
  bool same_for_all = false;
  const std::vector<float>* biases = nullptr;        // [3] or none
  const std::vector<std::uint8_t>* zeros = nullptr;  // [3] or none
  std::int64_t group = 0;                            // 0: a row
  const std::vector<float>* f8_scales = nullptr;     // [3] or none
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

// The rows of an expert that a half of a matrix is.
struct SourceRows {
  int matrix;  // of gate, up, down
  std::int64_t first;
  std::int64_t of_expert;
};
inline SourceRows source_rows(const StreamShape& shape, int matrix, int half, std::int64_t rows) {
  if (matrix == 1) return {2, half * rows, 2 * rows};
  return shape.gated ? SourceRows{half, 0, rows} : SourceRows{1, half * rows, 2 * rows};
}

// Canonical parts of gate, up and down on the device.
struct DeviceParts {
  device::Buffer codes[3], scales[3], zeros[3], f8_scales[3];
};

inline Result<void> pack_f8_matrix(const CellFormat& format, const StreamShape& shape,
                                   const HostExperts& host, const DeviceParts& parts, int matrix,
                                   std::uint8_t* to, const device::Stream& stream) {
  PackF8Args args;
  CudaF8Source& first = args.first;
  first.rows = matrix == 0 ? shape.rows1() : shape.hidden_size / 2;
  first.depth = matrix == 0 ? shape.hidden_size : shape.intermediate_size;
  args.count = static_cast<int>(shape.experts);
  args.to = to;
  for (int h = 0; h < 2; ++h) {
    const SourceRows from = source_rows(shape, matrix, h, first.rows);
    const std::int64_t blocks = (from.of_expert + 127) / 128 * ((first.depth + 127) / 128);
    first.codes[h] = parts.codes[from.matrix].as<std::uint8_t>() + from.first * first.depth;
    first.first_row[h] = from.first;
    args.codes_stride = host.same_for_all ? 0 : from.of_expert * first.depth;
    args.scales_stride = host.same_for_all ? 0 : blocks;
    if (format.kind == CellKind::mxfp8) {
      args.scales_stride = args.codes_stride / 32;
      first.mx_scales[h] =
          parts.scales[from.matrix].as<std::uint8_t>() + from.first * (first.depth / 32);
      continue;
    }
    if (format.f8 == F8Scales::block) first.scales[h] = parts.f8_scales[from.matrix].as<float>();
  }
  return device::check(launch_pack_f8(args, stream.handle()), "packing weights");
}

inline Result<void> pack_matrix(const CellFormat& format, const StreamShape& shape,
                                const HostExperts& host, const DeviceParts& parts, int matrix,
                                std::uint8_t* to, const device::Stream& stream) {
  if (format.kind == CellKind::f8 || format.kind == CellKind::mxfp8) {
    return pack_f8_matrix(format, shape, host, parts, matrix, to, stream);
  }
  const bool integers = has_int_cells(format.kind);
  const Dims half = matrix == 0 ? Dims{.n = shape.rows1(), .k = shape.hidden_size}
                                : Dims{.n = shape.hidden_size / 2, .k = shape.intermediate_size};
  PackF4Args f4;
  PackIntArgs words;
  CudaIntSource& first = words.first;
  first.rows = half.n;
  first.depth = half.k;
  first.group = host.group;
  first.bits = integers ? format.ints.bits : 4;
  if (format.kind == CellKind::int8) first.flipped_bit = 128;
  f4.count = words.count = static_cast<int>(shape.experts);
  f4.rows = static_cast<int>(half.n);
  f4.depth = static_cast<int>(half.k);
  f4.to = words.to = to;
  const std::int64_t groups = first.groups();
  for (int h = 0; h < 2; ++h) {
    const SourceRows from = source_rows(shape, matrix, h, half.n);
    const std::int64_t stride = host.same_for_all ? 0 : from.of_expert;
    f4.codes[h] = parts.codes[from.matrix].as<std::uint8_t>() + from.first * first.row_bytes();
    first.codes[h] = f4.codes[h];
    f4.codes_stride = words.codes_stride = stride * first.row_bytes();
    f4.scales_stride = words.scales_stride = stride * groups;
    if (integers) {
      first.scales[h] = parts.scales[from.matrix].as<std::uint16_t>() + from.first * groups;
      first.zeros[h] = parts.zeros[from.matrix].as<std::uint8_t>() + from.first * groups;
    } else {
      f4.scales[h] = parts.scales[from.matrix].as<std::uint8_t>() + from.first * groups;
    }
  }
  return device::check(integers ? launch_pack_int(format.ints, words, stream.handle())
                                : launch_pack_f4(format, f4, stream.handle()),
                       "packing weights");
}

inline Result<DeviceWeights> prepare_weights(CellFormat format, const StreamShape& shape,
                                             const HostExperts& host,
                                             const device::Stream& stream) {
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
  if (format.kind == CellKind::f8 && format.f8 == F8Scales::row) {
    FEWBIT_TRY(weights.rows13, upload(bias_of_halves(shape, host.f8_scales), stream));
    FEWBIT_TRY(weights.rows2, upload(host.f8_scales[2], stream));
  }
  FEWBIT_TRY(weights.global13, upload(global13, stream));
  FEWBIT_TRY(weights.global2, upload(global2, stream));
  DeviceParts parts;
  for (int m = 0; m < 3; ++m) {
    FEWBIT_TRY(parts.codes[m], upload(host.codes[m], stream));
    FEWBIT_TRY(parts.scales[m], upload(host.scales[m], stream));
    if (format.kind == CellKind::f8) {
      FEWBIT_TRY(parts.f8_scales[m], upload(host.f8_scales[m], stream));
    }
    if (host.zeros == nullptr) continue;
    std::vector<std::uint8_t> zeros = host.zeros[m];
    if (format.kind == CellKind::int8) {
      for (std::uint8_t& zero : zeros) zero ^= 128;
    }
    FEWBIT_TRY(parts.zeros[m], upload(zeros, stream));
  }
  const auto bytes = [&](Dims half) {
    return static_cast<std::uint64_t>(shape.experts * packed_bytes(format, half));
  };
  FEWBIT_TRY(weights.w13, device::Buffer::allocate(bytes(half1), stream));
  FEWBIT_TRY(weights.w2, device::Buffer::allocate(bytes(half2), stream));
  FEWBIT_TRY(pack_matrix(format, shape, host, parts, 0, weights.w13.as<std::uint8_t>(), stream));
  FEWBIT_TRY(pack_matrix(format, shape, host, parts, 1, weights.w2.as<std::uint8_t>(), stream));
  FEWBIT_TRY(stream.synchronize());
  return weights;
}

// Inputs, outputs and scratch of calls of one shape. Scratch and output begin as NaN.
struct DeviceCall {
  StreamPlan plan;
  MoeF4Rule rule;
  ActivationType x_type = ActivationType::bf16;
  device::Buffer x, ids, weights, map, out, activated, products, counters;

  MoeF4Args args(const DeviceWeights& w) const {
    MoeF4Args a;
    a.rule = rule;
    a.row_scale13 = w.rows13.as<float>();
    a.row_scale2 = w.rows2.as<float>();
    a.bias13 = w.bias13.as<float>();
    a.bias2 = w.bias2.as<float>();
    a.expert_map = map.as<std::int32_t>();
    a.map_size = static_cast<int>(map.size() / 4);
    a.w13 = w.w13.as<std::uint8_t>();
    a.w2 = w.w2.as<std::uint8_t>();
    a.global13 = w.global13.as<float>();
    a.global2 = w.global2.as<float>();
    a.x = x.data();
    a.x_type = x_type;
    a.out_type = x_type == ActivationType::f16 ? OutType::f16 : OutType::bf16;
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
  ActivationType x_type = ActivationType::bf16;  // and of results
};

inline Result<DeviceCall> make_call(const StreamPlan& plan, const HostCall& host,
                                    const device::Stream& stream) {
  DeviceCall call;
  call.plan = plan;
  call.rule = host.rule;
  call.x_type = host.x_type;
  if (host.map != nullptr) {
    FEWBIT_TRY(call.map, upload(*host.map, stream));
  }
  FEWBIT_TRY(call.x, upload(*host.x, stream));
  FEWBIT_TRY(call.ids, upload(*host.ids, stream));
  FEWBIT_TRY(call.weights, upload(*host.weights, stream));
  const auto routes =
      static_cast<std::uint64_t>(plan.tokens) * static_cast<std::uint64_t>(plan.top_k);
  const auto hidden = static_cast<std::uint64_t>(plan.hidden);
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

}  // namespace fewbit::cuda
