// SPDX-License-Identifier: Apache-2.0
// A MoE layer of random experts, for tests and benchmarks on a GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/cuda_moe/plan.hpp"
#include "core/float_convert.hpp"

namespace fewbit::cuda {

inline std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

inline CellFormat int4_cells(int scale_cells, bool zeros, bool f16) {
  return {.kind = CellKind::int4,
          .ints = {.scale_cells = scale_cells, .zeros = zeros},
          .f16_scales = f16};
}
inline CellFormat int8_cells(int scale_cells, bool zeros, bool f16) {
  return {.kind = CellKind::int8,
          .ints = {.bits = 8, .scale_cells = scale_cells, .zeros = zeros},
          .f16_scales = f16};
}
inline CellFormat ternary_cells(int scale_cells, bool f16) {
  return {.kind = CellKind::ternary,
          .ints = {.bits = 2, .scale_cells = scale_cells, .zeros = false},
          .f16_scales = f16};
}
inline constexpr CellFormat nf3_cells{.kind = CellKind::nf3, .ints = {.bits = 3}};
inline CellFormat f8_cells(F8Scales scales) { return {.kind = CellKind::f8, .f8 = scales}; }

// k that share a scale, where nothing else is asked for.
inline std::int64_t usual_group(const CellFormat& format) {
  if (has_int_cells(format.kind)) return 32 * format.ints.scale_cells;
  if (format.kind == CellKind::f8) return 128;
  return format.kind == CellKind::nvfp4 ? 16 : 32;
}

struct RandomLayer {
  CellFormat format = nvfp4_cells;
  StreamShape shape;
  std::int64_t group = 16;  // 0: a row
  // gate, up, down: [experts, n, k], a stream of bits a row; int8 is unsigned
  std::vector<std::uint8_t> codes[3];
  std::vector<std::uint8_t> scales[3];  // [experts, n, groups] of one or two bytes
  std::vector<std::uint8_t> zeros[3];   // [experts, n, groups] or none
  // Of f8: [experts, blocks of n, blocks of k], or [experts, n], or none.
  std::vector<float> f8_scales[3];
  std::vector<float> globals;  // [experts, 3]
  // Of x, activated rows and results.
  ActivationType x_type = ActivationType::bf16;
  std::vector<std::uint16_t> x;   // [tokens, hidden]
  std::vector<std::int32_t> ids;  // [tokens, top_k]
  std::vector<float> weights;
  MoeF4Rule rule;
  std::vector<float> biases[3];          // [experts, n] or none
  std::vector<std::int32_t> expert_map;  // or none
  // Act-order: the column of gate and up, and of down, that stands at each place of the codes;
  // [experts, k] or none.
  std::vector<std::int32_t> orders[2];

  // A vector in the order of an expert's columns.
  std::vector<double> ordered(int matrix, std::int64_t expert, std::vector<double> values) const {
    const auto& order = orders[matrix == 2 ? 1 : 0];
    if (order.empty()) return values;
    const std::vector<double> from = values;
    const auto* of_expert = order.data() + expert * static_cast<std::int64_t>(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      values[i] = from[static_cast<std::size_t>(of_expert[i])];
    }
    return values;
  }

  double number(std::uint16_t bits) const {
    return x_type == ActivationType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  // How far one rounding is from a number, at most: so many powers of 2 below it.
  int rounding() const { return x_type == ActivationType::f16 ? -11 : -8; }

  int code_bits() const {
    if (has_int_cells(format.kind)) return format.ints.bits;
    return format.kind == CellKind::f8 || format.kind == CellKind::mxfp8 ? 8 : 4;
  }
  // The code of int8, int4 and ternary weights that stands for zero.
  int code_middle() const { return code_bits() == 2 ? 1 : code_bits() == 4 ? 8 : 128; }
  // Of 2 or 3 bits.
  static std::uint8_t low_code(const std::uint8_t* row, std::int64_t k, int bits) {
    unsigned code = 0;
    for (int b = 0; b < bits; ++b) {
      const std::int64_t at = k * bits + b;
      code |= (row[at / 8] >> at % 8 & 1U) << b;
    }
    return static_cast<std::uint8_t>(code);
  }
  // The expert of a route, or -1.
  std::int64_t expert_of(std::size_t route) const {
    std::int64_t id = ids[route];
    if (!expert_map.empty()) {
      if (id < 0 || id >= static_cast<std::int64_t>(expert_map.size())) return -1;
      id = expert_map[static_cast<std::size_t>(id)];
    }
    return id >= 0 && id < shape.experts ? id : -1;
  }
  double bias(int matrix, std::int64_t expert, std::int64_t n) const {
    if (biases[matrix].empty()) return 0;
    return double{biases[matrix][static_cast<std::size_t>(expert * rows(matrix) + n)]};
  }
  std::int64_t rows(int matrix) const {
    return matrix == 2 ? shape.hidden_size : shape.intermediate_size;
  }
  std::int64_t depth(int matrix) const {
    return matrix == 2 ? shape.intermediate_size : shape.hidden_size;
  }
  std::int64_t groups(int matrix) const {
    return group == 0 ? 1 : (depth(matrix) + group - 1) / group;
  }
  double scale_value(int matrix, std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    if (format.kind == CellKind::nvfp4) return f8_e4m3_to_f32(scales[matrix][at]);
    if (format.kind == CellKind::mxfp4 || format.kind == CellKind::mxfp8) {
      return f8_e8m0_to_f32(scales[matrix][at]);
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, scales[matrix].data() + 2 * at, sizeof(bits));
    return format.f16_scales ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  // Of a code in group i.
  double code_value(int matrix, std::int64_t i, std::uint8_t code) const {
    if (format.kind == CellKind::mxfp8) return f8_e4m3_to_f32(code);
    if (format.kind == CellKind::nf3) return nf3_to_f32(code);
    if (!has_int_cells(format.kind)) return f4_e2m1_to_f32(code);
    const int middle = code_middle();
    return code - (zeros[matrix].empty() ? middle : zeros[matrix][static_cast<std::size_t>(i)]);
  }
  double f8_scale(int matrix, std::int64_t expert, std::int64_t n, std::int64_t block) const {
    std::int64_t i = 0;
    if (format.f8 == F8Scales::tensor) return 1;
    if (format.f8 == F8Scales::row) {
      i = expert * rows(matrix) + n;
    } else {
      i = (expert * ((rows(matrix) + 127) / 128) + n / 128) * groups(matrix) + block;
    }
    return double{f8_scales[matrix][static_cast<std::size_t>(i)]};
  }
  // sum and sum of sizes of row n of an expert's matrix times a vector.
  struct Dot {
    double sum = 0;
    double size = 0;
  };
  Dot dot_f8(int matrix, std::int64_t expert, std::int64_t n,
             const std::vector<double>& right) const {
    static const std::vector<double> values = [] {
      std::vector<double> out;
      for (int c = 0; c < 256; ++c) out.push_back(f8_e4m3_to_f32(static_cast<std::uint8_t>(c)));
      return out;
    }();
    const double global = double{globals[static_cast<std::size_t>(expert * 3 + matrix)]};
    const std::uint8_t* code = codes[matrix].data() + (expert * rows(matrix) + n) * depth(matrix);
    Dot dot;
    for (std::int64_t k = 0; k < depth(matrix); ++k) {
      const double product = values[code[k]] * f8_scale(matrix, expert, n, k / 128) * global *
                             right[static_cast<std::size_t>(k)];
      dot.sum += product;
      dot.size += std::abs(product);
    }
    return dot;
  }
  Dot dot(int matrix, std::int64_t expert, std::int64_t n, const std::vector<double>& right) const {
    if (format.kind == CellKind::f8) return dot_f8(matrix, expert, n, right);
    const std::int64_t row = expert * rows(matrix) + n;
    const std::uint8_t* code = codes[matrix].data() + row * (depth(matrix) * code_bits() / 8);
    const double global = double{globals[static_cast<std::size_t>(expert * 3 + matrix)]};
    const std::int64_t size_of_group = group == 0 ? depth(matrix) : group;
    Dot dot;
    for (std::int64_t g = 0; g < groups(matrix); ++g) {
      const std::int64_t i = row * groups(matrix) + g;
      double value[256];
      for (int c = 0; c < 1 << code_bits(); ++c) {
        value[c] = code_value(matrix, i, static_cast<std::uint8_t>(c));
      }
      double sum = 0;
      double size = 0;
      const std::int64_t end = std::min((g + 1) * size_of_group, depth(matrix));
      for (std::int64_t k = g * size_of_group; code_bits() == 8 && k < end; ++k) {
        const double product = value[code[k]] * right[static_cast<std::size_t>(k)];
        sum += product;
        size += std::abs(product);
      }
      for (std::int64_t k = g * size_of_group; code_bits() < 4 && k < end; ++k) {
        const double product =
            value[low_code(code, k, code_bits())] * right[static_cast<std::size_t>(k)];
        sum += product;
        size += std::abs(product);
      }
      for (std::int64_t k = g * size_of_group; code_bits() == 4 && k < end; k += 2) {
        const std::uint8_t byte = code[k / 2];
        const double low = value[byte & 15] * right[static_cast<std::size_t>(k)];
        const double high = value[byte >> 4] * right[static_cast<std::size_t>(k + 1)];
        sum += low + high;
        size += std::abs(low) + std::abs(high);
      }
      const double factor = scale_value(matrix, i) * global;
      dot.sum += sum * factor;
      dot.size += size * std::abs(factor);
    }
    return dot;
  }
};

// 0.002 to 0.03 of either sign; one in eight any 16 bits of at most that size, as subnormals and 0.
inline std::uint16_t random_scale(const CellFormat& format, std::uint64_t r) {
  const float value = 0.002F + 0.028F * static_cast<float>(r % 4096) / 4096;
  const auto from_f32 = format.f16_scales ? f32_to_f16 : f32_to_bf16;
  std::uint16_t bits = from_f32(value);
  if ((r >> 32 & 7) == 0) bits = static_cast<std::uint16_t>((r >> 40) % (bits + 1U));
  return static_cast<std::uint16_t>(bits | (r >> 20 & 1) << 15);
}

// Every code but NaN; scales of 2^-13 to 2^-9, one in eight negative or 0.
inline void fill_f8(RandomLayer& layer, int m, std::uint64_t& seed) {
  const std::int64_t experts = layer.shape.experts;
  layer.codes[m].resize(static_cast<std::size_t>(experts * layer.rows(m) * layer.depth(m)));
  for (std::uint8_t& code : layer.codes[m]) {
    code = static_cast<std::uint8_t>(next_random(seed) >> 32);
    if ((code & 0x7F) == 0x7F) code ^= 1;
  }
  std::int64_t count = 0;
  if (layer.format.f8 == F8Scales::row) count = experts * layer.rows(m);
  if (layer.format.f8 == F8Scales::block) {
    count = experts * ((layer.rows(m) + 127) / 128) * layer.groups(m);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t r = next_random(seed);
    float scale =
        std::ldexp(1.0F + static_cast<float>(r % 4096) / 4096, -13 + static_cast<int>(r >> 20 & 3));
    if ((r >> 32 & 7) == 0) scale = (r >> 40 & 1) != 0 ? 0.0F : -scale;
    layer.f8_scales[m].push_back(scale);
  }
}

// Every code; scales of both signs of exponent, with zeros and subnormals (and negative ones where
// the format has them) among them.
inline RandomLayer random_layer(CellFormat format, const StreamShape& shape, std::uint64_t seed,
                                std::int64_t group = -1) {
  RandomLayer layer;
  layer.format = format;
  layer.shape = shape;
  layer.shape.kind = format.kind;
  layer.group = group < 0 ? usual_group(format) : group;
  for (int m = 0; m < 3; ++m) {
    if (format.kind == CellKind::f8) {
      fill_f8(layer, m, seed);
      continue;
    }
    const std::int64_t rows = shape.experts * layer.rows(m);
    const auto grid = static_cast<std::size_t>(rows * layer.groups(m));
    layer.codes[m].resize(static_cast<std::size_t>(rows * layer.depth(m) * layer.code_bits() / 8));
    layer.scales[m].resize(has_int_cells(format.kind) ? 2 * grid : grid);
    for (std::size_t i = 0; i < layer.codes[m].size(); i += 8) {
      const std::uint64_t r = next_random(seed);
      std::memcpy(layer.codes[m].data() + i, &r,
                  std::min<std::size_t>(8, layer.codes[m].size() - i));
    }
    if (has_int_cells(format.kind)) {
      const unsigned mask = (1U << layer.code_bits()) - 1U;
      for (std::size_t i = 0; i < grid; ++i) {
        const std::uint64_t r = next_random(seed);
        const std::uint16_t scale = random_scale(format, r);
        std::memcpy(layer.scales[m].data() + 2 * i, &scale, sizeof(scale));
        if (format.ints.zeros) layer.zeros[m].push_back(static_cast<std::uint8_t>(r >> 50 & mask));
      }
      continue;
    }
    for (std::uint8_t& s : layer.scales[m]) {
      const std::uint64_t r = next_random(seed);
      if (format.kind == CellKind::nvfp4) {
        s = static_cast<std::uint8_t>(0x28 + r % 32);  // 2^-2 … 2^2
        if (r >> 32 & 7) continue;
        s = static_cast<std::uint8_t>(r >> 40);
        if ((s & 0x7F) > 0x40) s = static_cast<std::uint8_t>(s & 0x87);
      } else {
        s = static_cast<std::uint8_t>(r >> 32 & 15 ? 124 + r % 5 : 100 + r % 30);
      }
    }
    if (format.kind != CellKind::mxfp8) continue;
    // Codes up to 448 at the scales of those up to 6; no NaN.
    for (std::uint8_t& s : layer.scales[m]) s = static_cast<std::uint8_t>(s - 6);
    for (std::uint8_t& code : layer.codes[m]) {
      if ((code & 0x7F) == 0x7F) code ^= 1;
    }
  }
  for (std::int64_t e = 0; e < shape.experts * 3; ++e) {
    const float part = static_cast<float>(next_random(seed) % 1000) / 1000;
    layer.globals.push_back(
        format.kind == CellKind::nvfp4                                     ? 0.004F + 0.01F * part
        : format.kind == CellKind::mxfp4 || format.kind == CellKind::mxfp8 ? 0.03125F
        : format.kind == CellKind::int8                                    ? 0.03F + 0.06F * part
        : format.kind == CellKind::ternary || format.kind == CellKind::nf3 ? 3.0F + 6.0F * part
        : format.kind == CellKind::f8 && format.f8 == F8Scales::tensor     ? 0.0001F + 0.001F * part
                                                                           : 0.5F + part);
  }
  for (std::int64_t i = 0; i < shape.tokens * shape.hidden_size; ++i) {
    const auto r = static_cast<float>(next_random(seed) >> 40) / float(1 << 24) - 0.5F;
    layer.x.push_back(f32_to_bf16(4 * r));
  }
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    std::vector<std::int32_t> chosen;
    while (static_cast<std::int64_t>(chosen.size()) < shape.top_k) {
      const auto id =
          static_cast<std::int32_t>(next_random(seed) % static_cast<std::uint64_t>(shape.experts));
      bool seen = false;
      for (const std::int32_t other : chosen) seen = seen || other == id;
      if (!seen || static_cast<std::int64_t>(chosen.size()) >= shape.experts) chosen.push_back(id);
    }
    for (const std::int32_t id : chosen) {
      layer.ids.push_back(id);
      layer.weights.push_back(static_cast<float>(next_random(seed) % 1000) / 1000);
    }
  }
  return layer;
}

// Activations in f16, with digits that bf16 does not have.
inline void use_f16(RandomLayer& layer, std::uint64_t seed) {
  layer.x_type = ActivationType::f16;
  for (std::uint16_t& x : layer.x) {
    x = f32_to_f16(4 * (static_cast<float>(next_random(seed) >> 40) / float(1 << 24) - 0.5F));
  }
}

// Act-order: columns of every expert in an order of its own.
inline void add_orders(RandomLayer& layer, std::uint64_t seed) {
  for (const int matrix : {0, 2}) {
    auto& orders = layer.orders[matrix == 2 ? 1 : 0];
    for (std::int64_t e = 0; e < layer.shape.experts; ++e) {
      std::vector<std::int32_t> order;
      for (std::int64_t k = 0; k < layer.depth(matrix); ++k) {
        order.push_back(static_cast<std::int32_t>(k));
      }
      for (std::size_t i = order.size() - 1; i > 0; --i) {
        std::swap(order[i], order[next_random(seed) % (i + 1)]);
      }
      orders.insert(orders.end(), order.begin(), order.end());
    }
  }
}

// Biases for every row.
inline void add_biases(RandomLayer& layer, std::uint64_t seed) {
  for (int m = layer.shape.gated ? 0 : 1; m < 3; ++m) {
    for (std::int64_t i = 0; i < layer.shape.experts * layer.rows(m); ++i) {
      layer.biases[m].push_back(static_cast<float>(next_random(seed) % 2000) / 1000 - 1);
    }
  }
}

}  // namespace fewbit::cuda
