// SPDX-License-Identifier: Apache-2.0
#include "layout/cpu_f4_lane16_pack.hpp"

#include <cstring>

#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/row_major.hpp"

namespace fewbit {
namespace {

// The last block of 16 rows, where it is not full.
template <Layout L>
void clear_last_block(Dims d, std::uint8_t* out) {
  if (d.n % L::block_rows == 0) return;
  const Dims whole{.n = d.n / L::block_rows * L::block_rows, .k = d.k};
  const std::int64_t first = whole.n == 0 ? 0 : L::bytes(whole);
  std::memset(out + first, 0, static_cast<std::size_t>(L::bytes(d) - first));
}

template <Layout From, Layout To>
void pack_rows(Dims dims, Dims block, const std::uint8_t* in, std::uint8_t* out) {
  clear_last_block<To>(dims, out);
  ElementMover(map_layouts<From, To>(dims, block), packing_isa())
      .run_all(reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out));
}

}  // namespace

void pack_cpu_f4_lane16(const F4Rows& rows, std::uint8_t* codes, std::uint8_t* scales) {
  const Dims grid{.n = rows.dims.n, .k = rows.dims.k / CpuF4Lane16::group};
  pack_rows<RowMajor<4>, CpuF4Lane16>(rows.dims, {.n = 16, .k = 512}, rows.codes, codes);
  pack_rows<RowMajor<8>, CpuF4Lane16Scales>(grid, {.n = 16, .k = 256}, rows.scales, scales);
}

}  // namespace fewbit
