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
void pad_last_block(Dims d, std::uint8_t padding, std::uint8_t* out) {
  if (d.n % L::block_rows == 0) return;
  const Dims whole{.n = d.n / L::block_rows * L::block_rows, .k = d.k};
  const std::int64_t first = whole.n == 0 ? 0 : L::bytes(whole);
  std::memset(out + first, padding, static_cast<std::size_t>(L::bytes(d) - first));
}

// Blocks of 16 rows and as many bytes of k as the buffer of a mover likes.
template <Layout To>
void pack_rows(Dims dims, const std::uint8_t* in, std::uint8_t* out, std::uint8_t padding = 0) {
  constexpr Dims block{.n = 16, .k = 256 * 8 / To::bits};
  pad_last_block<To>(dims, padding, out);
  ElementMover(map_layouts<RowMajor<To::bits>, To>(dims, block), packing_isa())
      .run_all(reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out));
}

// Six bytes of a row at a time, which no powers of two are: row after row of a cell, 16 streams in
// and one out.
void pack_triples(Dims dims, const std::uint8_t* in, std::uint8_t* out, std::uint8_t padding) {
  using To = CpuTripleLane16;
  pad_last_block<To>(dims, padding, out);
  const std::int64_t row_bytes = dims.k * 2;
  const std::int64_t cells = dims.k / To::units;
  for (std::int64_t first = 0; first < dims.n; first += To::block_rows) {
    const std::int64_t rows = dims.n - first < To::block_rows ? dims.n - first : To::block_rows;
    for (std::int64_t cell = 0; cell < cells; ++cell, out += To::cell_bytes) {
      const std::uint8_t* from = in + first * row_bytes + cell * 6;
      for (std::int64_t r = 0; r < rows; ++r, from += row_bytes) {
        std::memcpy(out + r * 4, from, 4);
        std::memcpy(out + To::words_bytes + r * 2, from + 4, 2);
      }
    }
  }
}

}  // namespace

void pack_cpu_lane16_codes(int bits, Dims dims, const std::uint8_t* in, std::uint8_t* out,
                           std::uint8_t padding) {
  switch (bits) {
    case 2:
      return pack_rows<CpuPairLane16>(dims, in, out, padding);
    case 3:
      return pack_triples(CpuTripleLane16::of_codes(dims), in, out, padding);
    case 4:
      return pack_rows<CpuF4Lane16>(dims, in, out, padding);
    default:
      return pack_rows<CpuByteLane16>(dims, in, out, padding);
  }
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
