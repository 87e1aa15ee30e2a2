// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "kernels/cuda/pack_f4.hpp"
#include "layout/cuda_f4_cells.hpp"

namespace fewbit::cuda {
namespace {

constexpr int threads = 128;

// One cell a block and step: 128 words of codes, then the scales.
template <class Layout>
__global__ void __launch_bounds__(threads) pack_f4(const __grid_constant__ PackF4Args args) {
  const Dims half = {.n = args.rows, .k = args.depth};
  const std::int64_t units = Layout::units(half);
  const std::int64_t cells = Layout::cells(half);
  const std::int64_t groups = args.depth / Layout::group;
  for (std::int64_t c = blockIdx.x; c < args.count * units * cells; c += gridDim.x) {
    const std::int64_t expert = c / (units * cells);
    const std::int64_t unit = c / cells % units;
    const std::int64_t cell = c % cells;
    std::uint8_t* to = args.to + c * Layout::cell_bytes;
    const int i = static_cast<int>(threadIdx.x);
    // Word 4 (4 g + t) + 2 m + s: half m, rows g and g + 8, k 8 t + 4 s … + 3 of the cell.
    const int m = i / 2 % 2;
    const std::int64_t k = cell * 32 + i / 4 % 4 * 8 + i % 2 * 4;
    const std::uint8_t* codes = args.codes[m] + expert * args.codes_stride;
    const std::uint8_t* scales = args.scales[m] + expert * args.scales_stride;
    std::uint32_t word = 0;
    for (int high = 0; high < 2; ++high) {
      const std::int64_t row = unit * 16 + i / 16 + high * 8;
      if (row >= args.rows || k >= args.depth) continue;
      const std::uint8_t scale = scales[row * groups + k / Layout::group];
      for (int e = 0; e < 4; ++e) {
        const std::uint8_t byte = codes[row * (args.depth / 2) + (k + e) / 2];
        const auto code = static_cast<std::uint8_t>(e % 2 == 0 ? byte & 15 : byte >> 4);
        word |= Layout::code_bits(Layout::stored_code(code, scale), 2 * (e / 2) + high, e % 2);
      }
    }
    reinterpret_cast<std::uint32_t*>(to)[i] = word;
    if (i < Layout::scale_bytes) {
      const Element e = Layout::scale_element(i);
      const std::int64_t row = unit * 16 + e.n % 16;
      const std::int64_t group = cell * (32 / Layout::group) + e.k;
      std::uint8_t scale = 0;
      if (row < args.rows && group < groups) {
        scale = args.scales[e.n / 16][expert * args.scales_stride + row * groups + group];
      }
      to[512 + i] = Layout::stored_scale(scale);
    }
  }
}

template <class Layout>
cudaError_t launch(const PackF4Args& args, cudaStream_t stream) {
  const Dims half = {.n = args.rows, .k = args.depth};
  const std::int64_t cells = args.count * Layout::units(half) * Layout::cells(half);
  const auto blocks = static_cast<unsigned>(cells < 4096 ? cells : 4096);
  if (blocks != 0) pack_f4<Layout><<<blocks, threads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

int launch_pack_f4(F4Format format, const PackF4Args& args, void* stream) {
  auto* on = static_cast<cudaStream_t>(stream);
  return format == F4Format::e4m3_k16 ? launch<CudaF4Cells<16>>(args, on)
                                      : launch<CudaF4Cells<32>>(args, on);
}

}  // namespace fewbit::cuda
