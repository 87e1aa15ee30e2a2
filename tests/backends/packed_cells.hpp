// SPDX-License-Identifier: Apache-2.0
// What the backend cuda_moe packs of an expert, read back by the closed forms of its layouts.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/cuda_moe/cuda_moe.hpp"
#include "core/float_convert.hpp"
#include "layout/cuda_f4_cells.hpp"
#include "layout/cuda_f8_cells.hpp"
#include "layout/cuda_nf3_codes.hpp"
#include "layout/pack.hpp"

namespace fewbit::cuda {

inline std::int64_t parts_of(std::int64_t size, std::int64_t each) {
  return each == 0 ? 1 : (size + each - 1) / each;
}

// The column at each place: those of group 0, of group 1, …
inline std::vector<std::int64_t> columns_of(const QuantizedTensor& tensor) {
  std::vector<std::int64_t> out;
  for (std::int64_t g = 0; std::ssize(out) < tensor.k; ++g) {
    for (std::int64_t k = 0; k < tensor.k; ++k) {
      std::int32_t group = 0;
      std::memcpy(&group, tensor.g_idx.view.bytes.data() + 4 * k, sizeof(group));
      if (group == g) out.push_back(k);
    }
  }
  return out;
}

inline MoeProblem problem_of(const ExpertWeights& expert) {
  MoeProblem problem;
  problem.hidden_size = expert.up.k;
  problem.intermediate_size = expert.up.n;
  problem.num_experts = 1;
  problem.gate_up = expert.up.scheme;
  problem.down = expert.down.scheme;
  problem.activation.kind = expert.gate ? Activation::silu : Activation::relu2;
  problem.where = "layer";
  return problem;
}

struct Packed {
  MoePlan plan;
  std::vector<std::vector<std::byte>> memory;
  std::span<const std::byte> share(const char* name) const {
    return memory[static_cast<std::size_t>(plan.index(name))];
  }
  float number(const char* name, std::int64_t i) const {
    float value = 0;
    std::memcpy(&value, share(name).data() + 4 * i, sizeof(value));
    return value;
  }
};

inline Result<Packed> pack_one(const MoeProblem& problem, const ExpertWeights& expert) {
  Packed packed;
  FEWBIT_TRY(packed.plan, plan_moe(problem));
  std::vector<std::span<std::byte>> to;
  for (const PlannedBuffer& buffer : packed.plan.buffers) {
    packed.memory.emplace_back(buffer.expert_bytes, std::byte{0xA5});
  }
  for (auto& share : packed.memory) to.emplace_back(share);
  FEWBIT_TRY(pack_expert(problem, packed.plan, expert, to));
  return packed;
}

// Of whole matrices [n, k], n the rows of both halves. The code of bits that are layouts of their
// own, the lowest first.
template <template <int> class Plane, int... bit>
unsigned code_of_planes(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k,
                        std::integer_sequence<int, bit...> /*all*/) {
  return static_cast<unsigned>(((read_bits<1>(bytes, Plane<bit>::place(d, n, k)) << bit) | ...));
}

// A code less its zero point, or the value of an NF3 code.
template <int bits, int scale_cells, bool zeros>
float int_code(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k) {
  if constexpr (bits == 3) {
    const unsigned stored =
        code_of_planes<CudaNf3Plane>(bytes, d, n, k, std::make_integer_sequence<int, 3>());
    return nf3_to_f32(cuda_nf3_code(static_cast<std::uint8_t>(stored)));
  } else {
    const auto stored = static_cast<int>(
        read_bits<bits>(bytes, CudaIntCodes<bits, scale_cells, zeros>::place(d, n, k)));
    int zero = bits == 4 ? 8 : bits == 2 ? 1 : 0;
    if constexpr (zeros) {
      const Dims runs{.n = d.n, .k = parts_of(d.k, 32 * scale_cells)};
      const auto byte =
          static_cast<int>(read_bits<8>(bytes, CudaIntHeader<bits, scale_cells, true, true>::place(
                                                   runs, n, k / (32 * scale_cells))));
      zero = bits == 4 ? byte : static_cast<std::int8_t>(byte);
    }
    return static_cast<float>((bits == 8 ? static_cast<std::int8_t>(stored) : stored) - zero);
  }
}

template <int bits, int scale_cells, bool zeros>
float int_value(const MoeProblem& problem, std::span<const std::byte> bytes, Dims d, std::int64_t n,
                std::int64_t k, float global) {
  const std::int64_t run = k / (32 * scale_cells);
  const Dims runs{.n = d.n, .k = parts_of(d.k, 32 * scale_cells)};
  const auto scale = static_cast<std::uint16_t>(
      read_bits<16>(bytes, CudaIntHeader<bits, scale_cells, zeros, false>::place(runs, n, run)));
  const float factor = format_of(problem).f16_scales ? f16_to_f32(scale) : bf16_to_f32(scale);
  return int_code<bits, scale_cells, zeros>(bytes, d, n, k) * (factor * global);
}

template <class Cells, int bit>
unsigned f8_bit(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k) {
  return static_cast<unsigned>(read_bits<1>(bytes, CudaF8CodePlane<bit, Cells>::place(d, n, k)))
         << bit;
}

template <class Cells>
float f8_code(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k) {
  const auto code = [&]<int... bit>(std::integer_sequence<int, bit...> /*all*/) {
    return (f8_bit<Cells, bit>(bytes, d, n, k) | ...);
  }
  (std::make_integer_sequence<int, 8>());
  return f8_e4m3_to_f32(static_cast<std::uint8_t>(code));
}

inline float mxf8_value(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k,
                        float global) {
  const Dims grid{.n = d.n, .k = d.k / 32};
  const auto scale =
      static_cast<std::uint8_t>(read_bits<8>(bytes, CudaMxF8Scales::place(grid, n, k / 32)));
  return f8_code<CudaMxF8Cells>(bytes, d, n, k) * (f8_e8m0_to_f32(scale) * global);
}

inline float f8_value(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k,
                      float global) {
  const std::int64_t rows = d.n / 2;
  const Dims grid{.n = 2 * parts_of(rows, 16), .k = parts_of(d.k, 32)};
  const std::int64_t unit = n / rows * parts_of(rows, 16) + n % rows / 16;
  const auto bits =
      static_cast<std::uint32_t>(read_bits<32>(bytes, CudaF8CellScales::place(grid, unit, k / 32)));
  float scale = 0;
  std::memcpy(&scale, &bits, sizeof(scale));
  return f8_code<CudaF8Cells>(bytes, d, n, k) * (scale * global);
}

template <int group>
float f4_value(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k,
               float global) {
  unsigned code = 0;
  const auto add = [&]<int... bit>(std::integer_sequence<int, bit...> /*all*/) {
    ((code |=
      static_cast<unsigned>(read_bits<1>(bytes, CudaF4CodePlane<group, bit>::place(d, n, k)))
      << bit),
     ...);
  };
  add(std::make_integer_sequence<int, 4>());
  const Dims grid{.n = d.n, .k = d.k / group};
  const auto byte = static_cast<std::uint8_t>(
      read_bits<8>(bytes, CudaF4CellScales<group>::place(grid, n, k / group)));
  const float scale = group == 32
                          ? f8_e8m0_to_f32(byte)
                          : std::ldexp(1.0F + static_cast<float>(byte & 7) / 8, byte / 8 - 20);
  return f4_e2m1_to_f32(static_cast<std::uint8_t>(code)) * (scale * global);
}

// Of layout cuda_int_cells.
template <int bits>
float of_int_cells(const MoeProblem& problem, std::span<const std::byte> bytes, Dims d,
                   std::int64_t n, std::int64_t k, float global) {
  const CudaIntForm form = format_of(problem).ints;
  if constexpr (bits >= 4) {
    if (form.zeros) {
      return form.scale_cells == 4 ? int_value<bits, 4, true>(problem, bytes, d, n, k, global)
                                   : int_value<bits, 1, true>(problem, bytes, d, n, k, global);
    }
  }
  if (form.scale_cells == 4) return int_value<bits, 4, false>(problem, bytes, d, n, k, global);
  if (form.scale_cells == 2) return int_value<bits, 2, false>(problem, bytes, d, n, k, global);
  return int_value<bits, 1, false>(problem, bytes, d, n, k, global);
}

inline float packed_value(const MoeProblem& problem, const Packed& packed, int matrix, Dims d,
                          std::int64_t n, std::int64_t k) {
  const auto bytes = packed.share(matrix == 0 ? "gate_up" : "down");
  const float global = packed.number("global_scales", matrix == 1 ? 2 : n * 2 / d.n);
  const CellFormat format = format_of(problem);
  if (format.kind == CellKind::f8) {
    const std::int64_t row = matrix == 0 ? n : 2 * half1(problem).n + n;
    const float of_row = has_row_scales(problem) ? packed.number("row_scales", row) : 1.0F;
    return f8_value(bytes, d, n, k, of_row * global);
  }
  if (format.kind == CellKind::mxfp8) return mxf8_value(bytes, d, n, k, global);
  if (format.kind == CellKind::nvfp4) return f4_value<16>(bytes, d, n, k, global);
  if (format.kind == CellKind::mxfp4) return f4_value<32>(bytes, d, n, k, global);
  switch (format.ints.bits) {
    case 2:
      return of_int_cells<2>(problem, bytes, d, n, k, global);
    case 3:
      return of_int_cells<3>(problem, bytes, d, n, k, global);
    case 4:
      return of_int_cells<4>(problem, bytes, d, n, k, global);
    default:
      return of_int_cells<8>(problem, bytes, d, n, k, global);
  }
}

// With act-order, columns stand in the order of their groups and rows of gate and up in that of
// down's columns.
inline void expect_matrix(const MoeProblem& problem, const Packed& packed,
                          const ExpertWeights& expert, int matrix) {
  const bool two = matrix == 0 && expert.gate.has_value();
  const Dims d{.n = 2 * (matrix == 0 ? half1(problem).n : half2(problem).n),
               .k = matrix == 0 ? problem.hidden_size : problem.intermediate_size};
  const std::int64_t inner = problem.intermediate_size;
  const bool ordered = expert.down.scheme.act_order == ActOrder::group;
  const auto rows = ordered && matrix == 0 ? columns_of(expert.down) : std::vector<std::int64_t>();
  std::vector<float> row(static_cast<std::size_t>(d.k));
  for (std::int64_t n = 0; n < d.n; ++n) {
    const QuantizedTensor& from = matrix == 1        ? expert.down
                                  : two && n < inner ? *expert.gate
                                                     : expert.up;
    const auto columns = ordered ? columns_of(from) : std::vector<std::int64_t>();
    const std::int64_t place = two ? n % inner : n;
    ASSERT_TRUE(
        dequantize_rows(from, rows.empty() ? place : rows[static_cast<std::size_t>(place)], row));
    for (std::int64_t k = 0; k < d.k; ++k) {
      const auto column =
          static_cast<std::size_t>(ordered ? columns[static_cast<std::size_t>(k)] : k);
      ASSERT_EQ(packed_value(problem, packed, matrix, d, n, k), row[column])
          << "matrix " << matrix << " row " << n << " k " << k;
    }
  }
}

}  // namespace fewbit::cuda
