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
