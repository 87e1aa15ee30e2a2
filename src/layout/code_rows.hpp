// SPDX-License-Identifier: Apache-2.0
// Rows of codes, as canonical weights have them, straight into another layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/place.hpp"
#include "layout/row_major.hpp"

namespace fewbit {

// Rows of a larger matrix, from row first_n of it on.
struct CodeRows {
  std::span<const std::byte> codes;  // RowMajor of dims
  Dims dims;
  std::int64_t first_n = 0;
};

// What becomes of signed codes when their middle is added: the highest bit is another.
template <int bits>
constexpr std::array<std::uint8_t, (1U << bits)> middle_added() {
  std::array<std::uint8_t, (1U << bits)> table{};
  for (unsigned code = 0; code < table.size(); ++code) {
    table[code] = static_cast<std::uint8_t>(code ^ (1U << (bits - 1)));
  }
  return table;
}
template <int bits>
inline constexpr auto middle_added_table = middle_added<bits>();

// out: the whole matrix, `to`; other elements keep their bits. signed_codes: the middle is added.
// Precondition: first_n + dims.n <= to.n and dims.k <= to.k.
template <Layout To>
void move_code_rows(const CodeRows& rows, bool signed_codes, Dims to, std::span<std::byte> out,
                    Dims block = {.n = 64, .k = 512 / To::bits}) {
  using From = RowMajor<To::bits>;
  const Dims from = rows.dims;
  ElementMap map{
      .bits = To::bits,
      .source = [from, first = rows.first_n](
                    std::int64_t n, std::int64_t k) { return From::place(from, n - first, k); },
      .out = place_of<To>(to),
      .ranges = {{.first = {.n = rows.first_n, .k = 0}, .count = from, .block = block}}};
  if (signed_codes) map.table = middle_added_table<To::bits>.data();
  ElementMover(std::move(map), packing_isa()).run_all(rows.codes.data(), out.data());
}

}  // namespace fewbit
