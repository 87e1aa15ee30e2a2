// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/pack_f4.hpp"
#include "layout/cuda_f4_pack.hpp"

namespace fewbit::cuda {
namespace {

constexpr int threads = 128;

// One cell a block and step: 128 words of codes, then the scales.
template <class Layout>
__global__ void __launch_bounds__(threads) pack_f4(const __grid_constant__ PackF4Args args) {
  const Dims half = {.n = args.rows, .k = args.depth};
  const std::int64_t units = Layout::units(half);
  const std::int64_t cells = Layout::cells(half);
  for (std::int64_t c = blockIdx.x; c < args.count * units * cells; c += gridDim.x) {
    const std::int64_t expert = c / (units * cells);
    const std::int64_t unit = c / cells % units;
    const std::int64_t cell = c % cells;
    CudaF4Source from{.rows = args.rows, .depth = args.depth};
    for (int m = 0; m < 2; ++m) {
      from.codes[m] = args.codes[m] + expert * args.codes_stride;
      from.scales[m] = args.scales[m] + expert * args.scales_stride;
    }
    std::uint8_t* to = args.to + c * Layout::cell_bytes;
    const int i = static_cast<int>(threadIdx.x);
    reinterpret_cast<std::uint32_t*>(to)[i] = cuda_f4_word<Layout>(from, unit, cell, i);
    if (i < Layout::scale_bytes) to[512 + i] = cuda_f4_scale<Layout>(from, unit, cell, i);
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

// One cell a block and step, with its header where it has one of its own or is the first of its
// quad.
__global__ void __launch_bounds__(threads)
    pack_int(const __grid_constant__ CudaIntForm form, const __grid_constant__ PackIntArgs args) {
  const Dims half = {.n = args.first.rows, .k = args.first.depth};
  const std::int64_t units = CudaIntForm::units(half);
  const std::int64_t cells = 4 * CudaIntForm::quads(half);
  for (std::int64_t c = blockIdx.x; c < args.count * units * cells; c += gridDim.x) {
    const std::int64_t expert = c / (units * cells);
    const std::int64_t unit = c / cells % units;
    const std::int64_t cell = c % cells;
    CudaIntSource from = args.first;
    for (int m = 0; m < 2; ++m) {
      from.codes[m] += expert * args.codes_stride;
      from.scales[m] += expert * args.scales_stride;
      if (form.zeros) from.zeros[m] += expert * args.scales_stride;
    }
    std::uint8_t* to = args.to + (expert * units + unit) * (cells / 4) * form.quad_bytes();
    const int i = static_cast<int>(threadIdx.x);
    auto* codes = reinterpret_cast<std::uint32_t*>(to + form.codes_at(cell));
    for (int word = i; word < form.cell_bytes() / 4; word += threads) {
      codes[word] = cuda_int_word(from, unit, cell, word);
    }
    if (cell % form.scale_cells != 0 || i >= 32) continue;
    std::uint8_t* header = to + form.header_at(cell);
    reinterpret_cast<std::uint16_t*>(header)[i] =
        cuda_int_of_header(from, from.scales, unit, cell, i, std::uint16_t{0});
    if (form.zeros) {
      header[64 + i] = cuda_int_of_header(from, from.zeros, unit, cell, i, from.past_zero());
    }
  }
}

// One cell a block and step.
template <class Cells>
__global__ void __launch_bounds__(threads) pack_f8(const __grid_constant__ PackF8Args args) {
  const Dims half = {.n = args.first.rows, .k = args.first.depth};
  const std::int64_t units = Cells::units(half);
  const std::int64_t cells = Cells::cells(half);
  for (std::int64_t c = blockIdx.x; c < args.count * units * cells; c += gridDim.x) {
    const std::int64_t expert = c / (units * cells);
    CudaF8Source from = args.first;
    for (int m = 0; m < 2; ++m) {
      from.codes[m] += expert * args.codes_stride;
      if (from.scales[m] != nullptr) from.scales[m] += expert * args.scales_stride;
      if (from.mx_scales[m] != nullptr) from.mx_scales[m] += expert * args.scales_stride;
    }
    auto* to = reinterpret_cast<std::uint32_t*>(args.to + c * Cells::cell_bytes);
    const int i = static_cast<int>(threadIdx.x);
    for (int word = i; word < 256; word += threads) {
      const std::uint32_t codes = cuda_f8_codes(from, c / cells % units, c % cells, word);
      to[word] = cuda_f8_word(codes);
      if (args.nan != nullptr && cuda_f8_nan(codes)) *args.nan = 1;
    }
    if constexpr (std::is_same_v<Cells, CudaMxF8Cells>) {
      if (i < 32) {
        reinterpret_cast<std::uint8_t*>(to + 256)[i] =
            cuda_mxf8_scale(from, c / cells % units, c % cells, i);
      }
      continue;
    }
    if (i >= 4) continue;
    to[256 + i] =
        i < 2 ? __float_as_uint(cuda_f8_scale(from, c / cells % units, c % cells, i)) : 0U;
  }
}

}  // namespace

int launch_pack_f8(const PackF8Args& args, void* stream) {
  const Dims half = {.n = args.first.rows, .k = args.first.depth};
  const std::int64_t cells = args.count * CudaF8Cells::units(half) * CudaF8Cells::cells(half);
  const auto blocks = static_cast<unsigned>(cells < 4096 ? cells : 4096);
  auto* on = static_cast<cudaStream_t>(stream);
  if (blocks == 0) return cudaSuccess;
  if (args.first.mx_scales[0] != nullptr) {
    pack_f8<CudaMxF8Cells><<<blocks, threads, 0, on>>>(args);
  } else {
    pack_f8<CudaF8Cells><<<blocks, threads, 0, on>>>(args);
  }
  return cudaGetLastError();
}

int launch_pack_int(const CudaIntForm& form, const PackIntArgs& args, void* stream) {
  const Dims half = {.n = args.first.rows, .k = args.first.depth};
  const std::int64_t cells = 4 * args.count * CudaIntForm::units(half) * CudaIntForm::quads(half);
  const auto blocks = static_cast<unsigned>(cells < 4096 ? cells : 4096);
  if (blocks != 0) {
    pack_int<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(form, args);
  }
  return cudaGetLastError();
}

int launch_pack_f4(CellFormat format, const PackF4Args& args, void* stream) {
  auto* on = static_cast<cudaStream_t>(stream);
  return format == nvfp4_cells ? launch<CudaF4Cells<16>>(args, on)
                               : launch<CudaF4Cells<32>>(args, on);
}

}  // namespace fewbit::cuda
