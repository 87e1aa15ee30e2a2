// SPDX-License-Identifier: Apache-2.0
#include "scheme/integer_zeros.hpp"

#include <cstring>

#include "core/bit_stream.hpp"
#include "core/checked.hpp"

namespace fewbit {

ZeroFields count_zero_fields(const TensorView& qzeros, std::int64_t n, int bits) {
  ZeroFields out;
  const bool fits = qzeros.dtype == DType::i32 && qzeros.shape.size() == 2 && n > 0 &&
                    qzeros.shape[1] == ceil_div(n * bits, std::int64_t{32});
  if (!fits || qzeros.bytes.empty()) return out;
  std::memcpy(&out.first_word, qzeros.bytes.data(), sizeof(out.first_word));
  const std::uint32_t middle = 1U << static_cast<unsigned>(bits - 1);
  const std::uint32_t all_ones = 2 * middle - 1;
  const auto row_bytes = static_cast<std::size_t>(qzeros.shape[1]) * 4;
  for (std::size_t at = 0; at < qzeros.bytes.size(); at += row_bytes) {
    const auto row = qzeros.bytes.subspan(at, row_bytes);
    for (std::int64_t j = 0; j < n; ++j) {
      const std::uint32_t field = stream_bits(row, static_cast<std::uint64_t>(j * bits), bits);
      ++out.count;
      out.middle += field == middle ? 1 : 0;
      out.below += field == middle - 1 ? 1 : 0;
      out.zero += field == 0 ? 1 : 0;
      out.all_ones += field == all_ones ? 1 : 0;
    }
  }
  return out;
}

}  // namespace fewbit
