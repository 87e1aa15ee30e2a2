// SPDX-License-Identifier: Apache-2.0
// Random weights in the form that prepare_w4a16 takes, with room for its results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "fewbit/layouts.hpp"
#include "layout/pack.hpp"
#include "layout/row_major.hpp"
#include "layout/swizzle_128x4.hpp"

namespace fewbit::testing {

struct W4a16Example {
  struct Matrix {
    Dims dims;
    Dims grid;
    std::vector<std::byte> codes;   // [experts, n, k/2]
    std::vector<std::byte> scales;  // [experts, n, groups], never swizzled
    std::vector<std::byte> stored_scales;
    std::vector<float> globals;
    std::vector<std::byte> tiles_out;
    std::vector<std::byte> scales_out;
    std::vector<float> globals_out;
  };

  std::int64_t experts = 3;
  W4a16Input input;
  Matrix w13;
  Matrix w2;

  // Sets up everything from the fields of `like` that are not tensors. Scales: e4m3 from 1/4 to
  // 448, or e8m0 around 2^0.
  W4a16Example(const W4a16Input& like, std::int64_t expert_count)
      : experts(expert_count), input(like) {
    const std::int64_t halves = input.gating == Gating::gated ? 2 : 1;
    fill(w13, {.n = halves * input.intermediate_size, .k = input.hidden_size});
    fill(w2, {.n = input.hidden_size, .k = input.intermediate_size});
    refresh();
  }

  // After a change of scales or of the storage.
  void refresh() {
    view(w13, input.w13);
    view(w2, input.w2);
  }

  W4a16Output output() {
    const auto of = [](Matrix& m) {
      return W4a16MatrixOutput{
          .tiles = m.tiles_out, .scales = m.scales_out, .global_scales = m.globals_out};
    };
    return {.w13 = of(w13), .w2 = of(w2)};
  }

 private:
  void fill(Matrix& m, Dims dims) {
    m.dims = dims;
    m.grid = {.n = dims.n, .k = dims.k / w4a16_group_size(input.source)};
    m.codes.resize(static_cast<std::size_t>(experts * dims.n * dims.k / 2));
    m.scales.resize(static_cast<std::size_t>(experts * m.grid.n * m.grid.k));
    for (auto& byte : m.codes) byte = static_cast<std::byte>(random_());
    const bool e8m0 = input.source == W4a16Source::fp4_e8m0_k32;
    for (auto& byte : m.scales) {
      byte = static_cast<std::byte>(e8m0 ? 120 + random_() % 16 : 0x28 + random_() % (0x7f - 0x28));
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      m.globals.push_back(static_cast<float>(1 + random_() % 1000) / 4096.0F);
    }
    m.tiles_out.resize(m.codes.size());
    m.scales_out.resize(m.scales.size());
    m.globals_out.resize(m.globals.size());
  }

  void view(Matrix& m, W4a16Matrix& to) {
    const bool swizzled = input.block_scale_storage == BlockScaleStorage::swizzled_128x4;
    const Dims stored = swizzled ? Swizzle128x4<8>::padded(m.grid) : m.grid;
    m.stored_scales = m.scales;
    if (swizzled) swizzle(m);
    const DType scale_dtype =
        input.source == W4a16Source::fp4_e8m0_k32 ? DType::f8_e8m0 : DType::f8_e4m3;
    to.codes = {.dtype = DType::u8,
                .shape = {experts, m.dims.n, m.dims.k / 2},
                .bytes = m.codes,
                .device = {}};
    to.block_scales = {.dtype = scale_dtype,
                       .shape = {experts, stored.n, stored.k},
                       .bytes = m.stored_scales,
                       .device = {}};
    to.global_scales = {.dtype = DType::f32,
                        .shape = {experts},
                        .bytes = std::as_bytes(std::span(m.globals)),
                        .device = {}};
  }

  // Padding is 0x7f, a NaN: a preparation that reads it is found out.
  void swizzle(Matrix& m) {
    const auto bytes = static_cast<std::size_t>(Swizzle128x4<8>::bytes(m.grid));
    m.stored_scales.assign(bytes * static_cast<std::size_t>(experts), std::byte{0x7f});
    for (std::int64_t e = 0; e < experts; ++e) {
      pack<Swizzle128x4<8>>(
          m.grid,
          [&](std::int64_t n, std::int64_t k) {
            return std::to_integer<int>(
                m.scales[static_cast<std::size_t>((e * m.grid.n + n) * m.grid.k + k)]);
          },
          std::span(m.stored_scales).subspan(static_cast<std::size_t>(e) * bytes, bytes));
    }
  }

  std::mt19937 random_{7};
};

}  // namespace fewbit::testing
