// SPDX-License-Identifier: Apache-2.0
#include "layout/pack_b12x.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/aligned_buffer.hpp"
#include "core/checked.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/pack_fast.hpp"
#include "layout/parallel_ranges.hpp"

namespace fewbit {
namespace {

void pack_panel(const B12xPackJob& job, std::int64_t panel, const std::byte* codes,
                std::byte* tiles) {
  const std::int64_t row_bytes = job.dims.k / 2;
  B12xPanel work{};
  for (std::int64_t i = 0; i < B12xPacked::tile_n; ++i) {
    const std::int64_t row = job.rows.source(panel * B12xPacked::tile_n + i);
    work.rows[i] = reinterpret_cast<const std::uint8_t*>(codes) + row * row_bytes;
  }
  work.k = job.dims.k;
  work.tiles = reinterpret_cast<std::uint8_t*>(tiles) + panel * B12xPacked::tile_bytes;
  work.stride_bytes = job.dims.n / B12xPacked::tile_n * B12xPacked::tile_bytes;
  pack_b12x_panel(job.isa)(work);
}

}  // namespace

void pack_b12x(const B12xPackJob& job, std::span<const std::byte> codes, std::span<std::byte> tiles,
               Executor& executor) {
  assert(B12xPacked::accepts(job.dims) && job.rows.rows == job.dims.n);
  assert(std::ssize(codes) == job.experts * job.expert_bytes() && codes.size() == tiles.size());
  const std::int64_t panels = job.dims.n / B12xPacked::tile_n;
  parallel_ranges(executor, job.experts * panels, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t expert = i / panels * job.expert_bytes();
      pack_panel(job, i % panels, codes.data() + expert, tiles.data() + expert);
    }
  });
}

Result<void> pack_b12x_in_place(const B12xPackJob& job, std::span<std::byte> buffer,
                                Executor& executor) {
  assert(std::ssize(buffer) == job.experts * job.expert_bytes());
  const auto bytes = static_cast<std::size_t>(job.expert_bytes());
  FEWBIT_TRY(AlignedBuffer scratch, AlignedBuffer::allocate(bytes));
  B12xPackJob one = job;
  one.experts = 1;
  for (std::int64_t expert = 0; expert < job.experts; ++expert) {
    const auto part = buffer.subspan(static_cast<std::size_t>(expert) * bytes, bytes);
    constexpr std::int64_t block = 1 << 16;
    const std::int64_t blocks = ceil_div(job.expert_bytes(), block);
    parallel_ranges(executor, blocks, [&](std::int64_t begin, std::int64_t end) {
      const auto first = static_cast<std::size_t>(begin * block);
      const auto last = std::min(static_cast<std::size_t>(end * block), bytes);
      std::memcpy(scratch.data() + first, part.data() + first, last - first);
    });
    pack_b12x(one, scratch.span(), part, executor);
  }
  return {};
}

}  // namespace fewbit
