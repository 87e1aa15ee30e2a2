// SPDX-License-Identifier: Apache-2.0
// Scales of groups to the orders that kernels read.
#include <utility>

#include "bench/repack_layouts.hpp"
#include "fewbit/layouts.hpp"
#include "layout/row_major.hpp"
#include "layout/swizzle_128x4.hpp"
#include "layout/w4a16_scales.hpp"

namespace fewbit::bench {
namespace {

// 3056 columns, which fill no whole block of 64.
RepackCase uneven_grid(std::string name, const SharedBuffers& buffers) {
  constexpr std::int64_t all_experts = experts_of(codes.n * codes.k / 32);
  const W4a16ScaleJob job{.source = W4a16Source::fp4_e8m0_k32,
                          .storage = BlockScaleStorage::plain,
                          .experts = all_experts,
                          .k = codes.k,
                          .grid = {.n = codes.n - 16, .k = codes.k / 32},
                          .rows = {.rows = codes.n - 16, .shift = codes.n / 2 - 8},
                          .columns = codes.n};
  const std::int64_t read = all_experts * job.grid.n * job.grid.k;
  const std::int64_t written = all_experts * codes.n * job.grid.k;
  return {.name = std::move(name),
          .read_bytes = read,
          .written_bytes = written,
          .run = [=](Executor& executor) -> Result<void> {
            FEWBIT_TRY(prepare_block_scales(
                job, buffers->scales.span().first(static_cast<std::size_t>(read)),
                buffers->out.span().first(static_cast<std::size_t>(written)), executor));
            return {};
          }};
}

// As the engines' grids are made: the largest scale is found, then all are encoded and permuted.
RepackCase scale_grid(std::string name, const SharedBuffers& buffers, BlockScaleStorage storage) {
  constexpr std::int64_t all_experts = experts_of(codes.n * codes.k / 16);
  const W4a16ScaleJob job{.source = W4a16Source::modelopt_nvfp4,
                          .storage = storage,
                          .activation_dtype = DType::bf16,
                          .experts = all_experts,
                          .k = codes.k,
                          .grid = {.n = codes.n, .k = codes.k / 16},
                          .rows = {.rows = codes.n, .shift = codes.n / 2},
                          .columns = 0};
  const std::int64_t bytes = all_experts * job.grid.n * job.grid.k;
  return {.name = std::move(name),
          .read_bytes = bytes,
          .written_bytes = bytes,
          .run = [=](Executor& executor) -> Result<void> {
            const auto size = static_cast<std::size_t>(bytes);
            FEWBIT_TRY(prepare_block_scales(job, buffers->scales.span().first(size),
                                            buffers->out.span().first(size), executor));
            return {};
          }};
}

}  // namespace

void add_grid_cases(const SharedBuffers& b, IsaLevel isa, RepackCases& cases) {
  constexpr Dims grid{.n = codes.n, .k = codes.k / 16};
  const auto add = [&cases](RepackCase one) { cases.push_back(std::move(one)); };
  add(scale_grid("nvfp4 scale grid, plain", b, BlockScaleStorage::plain));
  add(scale_grid("nvfp4 scale grid, swizzled", b, BlockScaleStorage::swizzled_128x4));
  add(uneven_grid("e8m0 scale grid, uneven", b));
  add(layouts<RowMajor<8>, Swizzle128x4<8>>("swizzle 128x4", b, grid, {128, 32}, isa));
}

}  // namespace fewbit::bench
