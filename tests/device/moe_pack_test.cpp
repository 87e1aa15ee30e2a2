// SPDX-License-Identifier: Apache-2.0
// What the device packs, byte by byte. Needs a GPU; skipped where there is none.
#include <gtest/gtest.h>

#include <type_traits>

#include "device/moe_run.hpp"
#include "layout/cuda_f4_cells.hpp"
#include "layout/pack.hpp"

namespace fewbit::cuda {
namespace {

// Gate and up of all experts.
template <class Cells>
std::vector<std::uint8_t> host_f8_cells(const RandomLayer& layer) {
  const Dims half{.n = layer.rows(0), .k = layer.depth(0)};
  std::vector<std::uint8_t> out(static_cast<std::size_t>(layer.shape.experts * Cells::bytes(half)));
  std::uint8_t* to = out.data();
  for (std::int64_t e = 0; e < layer.shape.experts; ++e) {
    CudaF8Source from{.rows = half.n, .depth = half.k};
    for (int m = 0; m < 2; ++m) {
      from.codes[m] = layer.codes[m].data() + e * half.n * half.k;
      from.mx_scales[m] = layer.scales[m].data() + e * half.n * (half.k / 32);
      from.scales[m] =
          layer.f8_scales[m].data() + e * ((half.n + 127) / 128) * ((half.k + 127) / 128);
    }
    for (std::int64_t unit = 0; unit < Cells::units(half); ++unit) {
      for (std::int64_t cell = 0; cell < Cells::cells(half); ++cell) {
        for (int word = 0; word < 256; ++word) {
          const std::uint32_t bits = cuda_f8_word(cuda_f8_codes(from, unit, cell, word));
          std::memcpy(to + 4 * word, &bits, sizeof(bits));
        }
        for (int i = 0; i < 32 && std::is_same_v<Cells, CudaMxF8Cells>; ++i) {
          to[1024 + i] = cuda_mxf8_scale(from, unit, cell, i);
        }
        for (int h = 0; h < 2 && std::is_same_v<Cells, CudaF8Cells>; ++h) {
          const float scale = cuda_f8_scale(from, unit, cell, h);
          std::memcpy(to + 1024 + 4 * h, &scale, sizeof(scale));
        }
        to += Cells::cell_bytes;
      }
    }
  }
  return out;
}

// Gate and up of all experts.
std::vector<std::uint8_t> host_int_cells(const RandomLayer& layer) {
  const CudaIntForm& form = layer.format.ints;
  const Dims half{.n = layer.rows(0), .k = layer.depth(0)};
  const std::int64_t cells = 4 * CudaIntForm::quads(half);
  std::vector<std::uint8_t> out(static_cast<std::size_t>(layer.shape.experts * form.bytes(half)));
  std::vector<std::uint8_t> zeros[2] = {layer.zeros[0], layer.zeros[1]};
  for (auto& of_half : zeros) {
    for (std::uint8_t& zero : of_half) zero ^= form.bits == 8 ? 128 : 0;
  }
  std::uint8_t* to = out.data();
  for (std::int64_t e = 0; e < layer.shape.experts; ++e) {
    CudaIntSource from{.rows = half.n, .depth = half.k, .group = layer.group, .bits = form.bits};
    if (form.bits == 8) from.flipped_bit = 128;
    const std::int64_t groups = e * half.n * from.groups();
    for (int m = 0; m < 2; ++m) {
      from.codes[m] = layer.codes[m].data() + e * half.n * from.row_bytes();
      from.scales[m] = reinterpret_cast<const std::uint16_t*>(layer.scales[m].data()) + groups;
      from.zeros[m] = zeros[m].data() + groups;
    }
    for (std::int64_t unit = 0; unit < CudaIntForm::units(half); ++unit) {
      for (std::int64_t cell = 0; cell < cells; ++cell) {
        for (int word = 0; word < form.cell_bytes() / 4; ++word) {
          const std::uint32_t bits = cuda_int_word(from, unit, cell, word);
          std::memcpy(to + form.codes_at(cell) + 4 * word, &bits, sizeof(bits));
        }
        for (int i = 0; i < 32; ++i) {
          std::uint8_t* header = to + form.header_at(cell);
          const std::int64_t first = cell / form.scale_cells * form.scale_cells;
          const auto scale =
              cuda_int_of_header(from, from.scales, unit, first, i, std::uint16_t{0});
          std::memcpy(header + 2 * i, &scale, sizeof(scale));
          if (!form.zeros) continue;
          header[64 + i] = cuda_int_of_header(from, from.zeros, unit, first, i, from.past_zero());
        }
      }
      to += cells / 4 * form.quad_bytes();
    }
  }
  return out;
}

TEST_F(MoeF4Test, DevicePackingGivesTheBytesOfTheClosedForm) {
  for (const CellFormat format : {nvfp4_cells, mxfp4_cells}) {
    const RandomLayer layer = random_layer(format, {1, 1, 3, 96, 32}, 9);
    Result<device::Stream> stream = device::Stream::create();
    ASSERT_OK(stream);
    const Result<DeviceWeights> weights =
        prepare_weights(format, layer.shape, host_experts(layer), *stream);
    ASSERT_OK(weights);
    std::vector<std::uint8_t> packed(weights->w13.size());
    ASSERT_OK(device::copy_to_host(std::as_writable_bytes(std::span(packed)), weights->w13.data(),
                                   *stream));
    ASSERT_OK(stream->synchronize());
    std::vector<std::uint8_t> expected(packed.size());
    const auto fill = [&]<int group>(std::integral_constant<int, group> /*of the scales*/) {
      using Cells = CudaF4Cells<group>;
      const Dims d = {.n = 64, .k = 96};
      const std::int64_t size = Cells::bytes({.n = 32, .k = 96});
      for (std::int64_t e = 0; e < 3; ++e) {
        const auto scale = [&](std::int64_t n, std::int64_t g) {
          const std::int64_t row = e * 32 + n % 32;
          return layer.scales[n / 32][static_cast<std::size_t>(row * (96 / group) + g)];
        };
        const auto code = [&](std::int64_t n, std::int64_t k) {
          const std::int64_t row = e * 32 + n % 32;
          const std::uint8_t byte = layer.codes[n / 32][static_cast<std::size_t>(row * 48 + k / 2)];
          const auto stored = static_cast<std::uint8_t>(k % 2 == 0 ? byte & 15 : byte >> 4);
          return Cells::stored_code(stored, scale(n, k / group));
        };
        const auto to =
            std::as_writable_bytes(std::span(expected))
                .subspan(static_cast<std::size_t>(e * size), static_cast<std::size_t>(size));
        const auto plane = [&]<int bit>(std::integral_constant<int, bit> /*of the codes*/) {
          pack<CudaF4CodePlane<group, bit>>(
              d, [&](std::int64_t n, std::int64_t k) { return code(n, k) >> bit & 1; }, to);
        };
        plane(std::integral_constant<int, 0>{});
        plane(std::integral_constant<int, 1>{});
        plane(std::integral_constant<int, 2>{});
        plane(std::integral_constant<int, 3>{});
        pack<CudaF4CellScales<group>>(
            {.n = 64, .k = 96 / group},
            [&](std::int64_t n, std::int64_t g) { return Cells::stored_scale(scale(n, g)); }, to);
      }
    };
    if (format.kind == CellKind::nvfp4) {
      fill(std::integral_constant<int, 16>{});
    } else {
      fill(std::integral_constant<int, 32>{});
    }
    EXPECT_EQ(packed, expected);
  }
}

// Against the words of the host, which the layouts' tests hold to the closed form.
TEST_F(MoeF4Test, DevicePackingOfIntegersAndFp8GivesTheBytesOfTheHost) {
  for (const CellFormat& format : all_formats()) {
    const bool f8 = format.kind == CellKind::f8 && format.f8 == F8Scales::block;
    const bool mx = format.kind == CellKind::mxfp8;
    if (!has_int_cells(format.kind) && !f8 && !mx) continue;
    const RandomLayer layer = random_layer(format, {1, 1, 3, mx ? 192 : 176, 200}, 9);
    Result<device::Stream> stream = device::Stream::create();
    ASSERT_OK(stream);
    const Result<DeviceWeights> weights =
        prepare_weights(format, layer.shape, host_experts(layer), *stream);
    ASSERT_OK(weights);
    std::vector<std::uint8_t> packed(weights->w13.size());
    ASSERT_OK(device::copy_to_host(std::as_writable_bytes(std::span(packed)), weights->w13.data(),
                                   *stream));
    ASSERT_OK(stream->synchronize());
    EXPECT_EQ(packed, mx   ? host_f8_cells<CudaMxF8Cells>(layer)
                      : f8 ? host_f8_cells<CudaF8Cells>(layer)
                           : host_int_cells(layer));
  }
}

}  // namespace
}  // namespace fewbit::cuda
