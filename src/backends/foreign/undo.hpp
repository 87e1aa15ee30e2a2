// SPDX-License-Identifier: Apache-2.0
// Prepared buffers taken apart by the closed forms of their layouts, element by element, and
// compared with what they were made from: no code of the packers takes part.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "layout/pack.hpp"
#include "layout/row_major.hpp"
#include "select/moe_plan.hpp"

namespace fewbit::foreign {

// The share of a buffer. Error inconsistent: the plan has none of that name, or it has another
// size.
Result<std::span<const std::byte>> share_to_undo(const MoePlan& plan, ConstExpertSpans from,
                                                 std::string_view name, std::int64_t bytes);
// Error inconsistent: the first byte that differs, and both values.
Result<void> compare_rows(std::string_view name, std::span<const std::byte> undone,
                          std::span<const std::byte> rows);

// Error inconsistent: the element, its value and the one expected.
Error element_differs(std::string_view name, Element at, std::uint64_t has, std::uint64_t want);

// want(n, k): bits of the element.
template <Layout L, class Want>
Result<void> compare_elements(const MoePlan& plan, ConstExpertSpans from, std::string_view name,
                              Dims dims, const Want& want) {
  FEWBIT_TRY(const auto share, share_to_undo(plan, from, name, L::bytes(dims)));
  for (std::int64_t n = 0; n < dims.n; ++n) {
    for (std::int64_t k = 0; k < dims.k; ++k) {
      const std::uint64_t has = read_bits<L::bits>(share, L::place(dims, n, k));
      const std::uint64_t expected = want(n, k);
      if (has != expected) return element_differs(name, {.n = n, .k = k}, has, expected);
    }
  }
  return {};
}

// rows: elements [dims.n, dims.k] as the source has them, padding included.
template <Layout L>
Result<void> compare_undone(const MoePlan& plan, ConstExpertSpans from, std::string_view name,
                            Dims dims, std::span<const std::byte> rows) {
  FEWBIT_TRY(const auto share, share_to_undo(plan, from, name, L::bytes(dims)));
  FEWBIT_TRY(OwnedTensor undone, allocate_tensor(DType::u8, {RowMajor<L::bits>::bytes(dims)}));
  unpack<L>(dims, share, [&](std::int64_t n, std::int64_t k, std::uint64_t code) {
    write_bits<L::bits>(undone.bytes, RowMajor<L::bits>::place(dims, n, k), code);
  });
  return compare_rows(name, undone.bytes, rows);
}

}  // namespace fewbit::foreign
