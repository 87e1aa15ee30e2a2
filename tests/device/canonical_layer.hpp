// SPDX-License-Identifier: Apache-2.0
// The matrices of a random layer as canonicalize() gives them.
#pragma once

#include <algorithm>
#include <cstring>

#include "device/random_layer.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit::cuda {

inline Tensor tensor_of(DType dtype, Shape shape, std::span<const std::uint8_t> bytes) {
  OwnedTensor owned = allocate_tensor(dtype, std::move(shape)).value();
  std::memcpy(owned.bytes.data(), bytes.data(), owned.bytes.size());
  return owned.tensor;
}

// Codes of places [n, k] at the columns that stand there.
inline std::vector<std::uint8_t> scattered(const std::vector<std::uint8_t>& codes, std::int64_t n,
                                           std::span<const std::int32_t> order, int bits) {
  std::vector<std::uint8_t> out(codes.size());
  const std::size_t k = order.size();
  for (std::size_t row = 0; row < static_cast<std::size_t>(n); ++row) {
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t from = row * k + i;
      const std::size_t to = row * k + static_cast<std::size_t>(order[i]);
      if (bits == 8) {
        out[to] = codes[from];
        continue;
      }
      const unsigned code = codes[from / 2] >> (from % 2 * 4) & 15U;
      out[to / 2] = static_cast<std::uint8_t>(out[to / 2] | code << (to % 2 * 4));
    }
  }
  return out;
}

inline DType int_weight_of(const RandomLayer& layer) {
  const bool zeros = layer.format.ints.zeros;
  switch (layer.code_bits()) {
    case 2:
      return DType::u2;
    case 3:
      return DType::nf3;
    case 4:
      return zeros ? DType::i4 : DType::u4;
    default:
      return zeros ? DType::i8 : DType::u8;
  }
}

// As signed codes where it has zero points, else as GPTQ has them; ternary and NF3 codes too.
inline QuantizedTensor int_matrix_of(const RandomLayer& layer, int matrix, std::int64_t expert) {
  const std::int64_t n = layer.rows(matrix);
  const std::int64_t k = layer.depth(matrix);
  const std::int64_t groups = layer.groups(matrix);
  const bool zeros = layer.format.ints.zeros;
  const bool four = layer.code_bits() == 4;
  const int middle = layer.code_middle();
  const DType scale = layer.format.f16_scales ? DType::f16 : DType::bf16;
  const auto part = [&](const std::vector<std::uint8_t>& all, std::int64_t size) {
    const auto begin = all.begin() + expert * size;
    return std::vector<std::uint8_t>(begin, begin + size);
  };
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme.producer = zeros ? Producer::compressed_tensors : Producer::gptq;
  tensor.scheme.weight = int_weight_of(layer);
  tensor.scheme.zero_points = zeros;
  tensor.scheme.zero_point = zeros || layer.format.kind == CellKind::nf3 ? 0 : middle;
  tensor.scheme.scale = ScaleSpec{};
  tensor.scheme.scale->dtype = scale;
  tensor.scheme.scale->granularity = {.rows = 1, .cols = layer.group};
  std::vector<std::uint8_t> codes = part(layer.codes[matrix], n * k * layer.code_bits() / 8);
  if (zeros) {
    std::vector<std::uint8_t> zero_points = part(layer.zeros[matrix], n * groups);
    for (std::uint8_t& zero : zero_points) zero = static_cast<std::uint8_t>(zero - middle);
    tensor.zero_points = tensor_of(DType::i8, {n, groups}, zero_points);
    for (std::uint8_t& code : codes) code ^= four ? 0x88 : 0x80;
  }
  const auto& orders = layer.orders[matrix == 2 ? 1 : 0];
  if (!orders.empty()) {
    const std::span order = std::span(orders).subspan(static_cast<std::size_t>(expert * k),
                                                      static_cast<std::size_t>(k));
    codes = scattered(codes, n, order, layer.code_bits());
    std::vector<std::int32_t> groups_of(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      groups_of[static_cast<std::size_t>(order[i])] =
          static_cast<std::int32_t>(static_cast<std::int64_t>(i) / layer.group);
    }
    tensor.g_idx = tensor_of(DType::i32, {k},
                             {reinterpret_cast<const std::uint8_t*>(groups_of.data()),
                              groups_of.size() * sizeof(std::int32_t)});
    tensor.scheme.act_order = ActOrder::group;
  }
  tensor.codes = tensor_of(tensor.scheme.weight, {n, k}, codes);
  tensor.scales = tensor_of(scale, {n, groups}, part(layer.scales[matrix], 2 * n * groups));
  tensor.global_scale = layer.globals[static_cast<std::size_t>(expert * 3 + matrix)];
  return tensor;
}

inline QuantizedTensor f8_matrix_of(const RandomLayer& layer, int matrix, std::int64_t expert) {
  const std::int64_t n = layer.rows(matrix);
  const std::int64_t k = layer.depth(matrix);
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme.producer = Producer::fp8;
  tensor.scheme.weight = DType::f8_e4m3;
  tensor.scheme.scale = ScaleSpec{};
  Shape grid = {1, 1};
  if (layer.format.f8 == F8Scales::row) {
    tensor.scheme.scale->granularity = {.rows = 1, .cols = 0};
    grid = {n, 1};
  } else if (layer.format.f8 == F8Scales::block) {
    tensor.scheme.scale->granularity = {.rows = 128, .cols = 128};
    grid = {(n + 127) / 128, (k + 127) / 128};
  }
  const std::int64_t count = grid[0] * grid[1];
  std::vector<float> scales(static_cast<std::size_t>(count));
  tensor.global_scale = layer.globals[static_cast<std::size_t>(expert * 3 + matrix)];
  if (layer.format.f8 == F8Scales::tensor) {
    scales[0] = tensor.global_scale;
    tensor.global_scale = 1.0F;
  } else {
    std::copy_n(layer.f8_scales[matrix].begin() + expert * count, count, scales.begin());
  }
  const std::span codes =
      std::span(layer.codes[matrix])
          .subspan(static_cast<std::size_t>(expert * n * k), static_cast<std::size_t>(n * k));
  tensor.codes = tensor_of(DType::f8_e4m3, {n, k}, codes);
  tensor.scales = tensor_of(
      DType::f32, grid,
      {reinterpret_cast<const std::uint8_t*>(scales.data()), scales.size() * sizeof(float)});
  return tensor;
}

inline QuantizedTensor matrix_of(const RandomLayer& layer, int matrix, std::int64_t expert) {
  const std::int64_t n = layer.rows(matrix);
  const std::int64_t k = layer.depth(matrix);
  const auto part = [&](const std::vector<std::uint8_t>& all, std::int64_t size) {
    return std::span(all).subspan(static_cast<std::size_t>(expert * size),
                                  static_cast<std::size_t>(size));
  };
  if (has_int_cells(layer.format.kind)) return int_matrix_of(layer, matrix, expert);
  if (layer.format.kind == CellKind::f8) return f8_matrix_of(layer, matrix, expert);
  const bool mxfp8 = layer.format.kind == CellKind::mxfp8;
  const DType weight = mxfp8 ? DType::f8_e4m3 : DType::f4_e2m1;
  Tensor codes =
      tensor_of(weight, {n, k}, part(layer.codes[matrix], n * k * layer.code_bits() / 8));
  const auto scales = part(layer.scales[matrix], n * k / layer.group);
  const float global = layer.globals[static_cast<std::size_t>(expert * 3 + matrix)];
  if (layer.format.kind == CellKind::nvfp4) {
    return make_nvfp4(n, k, std::move(codes), tensor_of(DType::f8_e4m3, {n, k / 16}, scales),
                      global)
        .value();
  }
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme.producer = mxfp8 ? Producer::fp8 : Producer::mxfp4;
  tensor.scheme.weight = weight;
  tensor.scheme.scale = ScaleSpec{};
  tensor.scheme.scale->dtype = DType::f8_e8m0;
  tensor.scheme.scale->granularity = {.rows = 1, .cols = 32};
  tensor.codes = std::move(codes);
  tensor.scales = tensor_of(DType::f8_e8m0, {n, k / 32}, scales);
  tensor.global_scale = global;
  return tensor;
}

}  // namespace fewbit::cuda
