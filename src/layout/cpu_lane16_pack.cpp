// SPDX-License-Identifier: Apache-2.0
#include "layout/cpu_lane16_pack.hpp"

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

// Blocks of 16 rows and as many bytes of k as the buffer of a mover likes.
template <Layout To>
void pack_rows(Dims dims, const std::uint8_t* in, std::uint8_t* out) {
  constexpr Dims block{.n = 16, .k = 256 * 8 / To::bits};
  clear_last_block<To>(dims, out);
  ElementMover(map_layouts<RowMajor<To::bits>, To>(dims, block), packing_isa())
      .run_all(reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out));
}

}  // namespace

void pack_cpu_lane16_codes(int bits, Dims dims, const std::uint8_t* in, std::uint8_t* out) {
  if (bits == 4) return pack_rows<CpuF4Lane16>(dims, in, out);
  pack_rows<CpuByteLane16>(dims, in, out);
}

void pack_cpu_lane16_groups(int bits, Dims grid, const std::uint8_t* in, std::uint8_t* out) {
  if (bits == 8) return pack_rows<CpuLane16Groups<8>>(grid, in, out);
  if (bits == 16) return pack_rows<CpuLane16Groups<16>>(grid, in, out);
  pack_rows<CpuLane16Groups<32>>(grid, in, out);
}

void pack_cpu_f4_lane16(const F4Rows& rows, std::uint8_t* codes, std::uint8_t* scales) {
  pack_cpu_lane16_codes(4, rows.dims, rows.codes, codes);
  pack_cpu_lane16_groups(8, {.n = rows.dims.n, .k = rows.dims.k / CpuF4Lane16::step}, rows.scales,
                         scales);
}

}  // namespace fewbit
