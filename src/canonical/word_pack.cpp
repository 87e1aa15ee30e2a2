// SPDX-License-Identifier: Apache-2.0
#include "canonical/word_pack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "core/checked.hpp"

namespace fewbit {
namespace {

Error bad(std::string what) { return Error{ErrorCode::invalid_argument, std::move(what), ""}; }

Result<std::size_t> checked_count(MatrixSize size, std::size_t given, const char* what) {
  const auto count =
      size.rows >= 0 && size.columns >= 0 ? checked_mul(size.rows, size.columns) : std::nullopt;
  if (count && static_cast<std::uint64_t>(*count) == given) {
    return static_cast<std::size_t>(*count);
  }
  return bad(fmt::format("{} {}, expected [{}, {}]", given, what, size.rows, size.columns));
}

// Codes a word, when `length` codes fill words of them.
Result<std::int64_t> codes_a_word(int bits, std::int64_t length) {
  if (bits < 1 || bits > 32 || 32 % bits != 0) {
    return bad(fmt::format("{} bits do not divide a word of 32", bits));
  }
  const std::int64_t each = 32 / bits;
  if (length % each == 0) return each;
  return bad(fmt::format("{} codes of {} bits do not fill words of {}", length, bits, each));
}

Result<void> check_range(std::span<const std::int32_t> codes, int bits, WideCodes wide) {
  if (wide == WideCodes::spill || bits >= 32) return {};
  const std::int64_t last = (std::int64_t{1} << bits) - 1;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] < 0 || codes[i] > last) {
      return bad(fmt::format("code {} is {}, expected 0 to {}", i, codes[i], last));
    }
  }
  return {};
}

std::vector<std::int32_t> widened(const std::vector<std::uint8_t>& codes) {
  return {codes.begin(), codes.end()};
}

}  // namespace

Result<std::vector<std::uint32_t>> pack_rows(std::span<const std::int32_t> codes, MatrixSize size,
                                             int bits, WideCodes wide) {
  FEWBIT_TRY(const std::size_t count, checked_count(size, codes.size(), "codes"));
  FEWBIT_TRY(const std::int64_t each, codes_a_word(bits, size.rows));
  FEWBIT_TRY(check_range(codes, bits, wide));
  const auto columns = static_cast<std::size_t>(size.columns);
  std::vector<std::uint32_t> words(count / static_cast<std::size_t>(each));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = i / columns;
    const auto shift =
        static_cast<unsigned>(row % static_cast<std::size_t>(each)) * static_cast<unsigned>(bits);
    words[row / static_cast<std::size_t>(each) * columns + i % columns] |=
        static_cast<std::uint32_t>(codes[i]) << shift;
  }
  return words;
}

Result<std::vector<std::uint32_t>> pack_cols(std::span<const std::int32_t> codes, MatrixSize size,
                                             int bits, WideCodes wide) {
  FEWBIT_TRY(const std::size_t count, checked_count(size, codes.size(), "codes"));
  FEWBIT_TRY(const std::int64_t each, codes_a_word(bits, size.columns));
  FEWBIT_TRY(check_range(codes, bits, wide));
  std::vector<std::uint32_t> words(count / static_cast<std::size_t>(each));
  for (std::size_t i = 0; i < count; ++i) {
    const auto shift =
        static_cast<unsigned>(i % static_cast<std::size_t>(each)) * static_cast<unsigned>(bits);
    words[i / static_cast<std::size_t>(each)] |= static_cast<std::uint32_t>(codes[i]) << shift;
  }
  return words;
}

Result<std::vector<std::int32_t>> unpack_cols(std::span<const std::uint32_t> words, MatrixSize size,
                                              int bits) {
  FEWBIT_TRY(const std::int64_t each, codes_a_word(bits, size.columns));
  FEWBIT_TRY(const std::size_t count,
             checked_count({size.rows, size.columns / each}, words.size(), "words"));
  const std::uint32_t mask = bits == 32 ? ~0U : (1U << static_cast<unsigned>(bits)) - 1U;
  std::vector<std::int32_t> codes(count * static_cast<std::size_t>(each));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto shift =
        static_cast<unsigned>(i % static_cast<std::size_t>(each)) * static_cast<unsigned>(bits);
    codes[i] =
        static_cast<std::int32_t>((words[i / static_cast<std::size_t>(each)] >> shift) & mask);
  }
  return codes;
}

Result<PlainPack> awq_to_plain_pack(std::span<const std::uint32_t> qweight, MatrixSize codes,
                                    std::span<const std::uint32_t> qzeros, MatrixSize zeros) {
  constexpr int bits = 4;
  FEWBIT_TRY(const std::int64_t each, codes_a_word(bits, codes.columns));
  if (zeros.columns != codes.columns) {
    return bad(fmt::format("zero points of {} columns, codes of {}", zeros.columns, codes.columns));
  }
  FEWBIT_TRY(checked_count({codes.rows, codes.columns / each}, qweight.size(), "words"));
  FEWBIT_TRY(checked_count({zeros.rows, zeros.columns / each}, qzeros.size(), "words"));
  PlainPack out;
  const auto plain_codes = widened(unpack_awq_nibbles(std::as_bytes(qweight), codes));
  const auto plain_zeros = widened(unpack_awq_nibbles(std::as_bytes(qzeros), zeros));
  FEWBIT_TRY(out.qweight, pack_rows(plain_codes, codes, bits));
  FEWBIT_TRY(out.qzeros, pack_cols(plain_zeros, zeros, bits));
  return out;
}

Result<SortedRows> sort_rows_by_group(std::span<const std::int32_t> codes, MatrixSize size,
                                      std::span<const std::int32_t> g_idx) {
  FEWBIT_TRY(const std::size_t count, checked_count(size, codes.size(), "codes"));
  FEWBIT_TRY(const std::size_t rows, checked_count({size.rows, 1}, g_idx.size(), "groups"));
  SortedRows out;
  out.order.resize(rows);
  std::iota(out.order.begin(), out.order.end(), 0);
  std::stable_sort(out.order.begin(), out.order.end(), [&](std::int32_t a, std::int32_t b) {
    return g_idx[static_cast<std::size_t>(a)] < g_idx[static_cast<std::size_t>(b)];
  });
  out.codes.reserve(count);
  for (const std::int32_t row : out.order) {
    const auto at = static_cast<std::size_t>(row);
    const auto one = codes.subspan(at * (count / rows), count / rows);
    out.codes.insert(out.codes.end(), one.begin(), one.end());
    out.g_idx.push_back(g_idx[at]);
  }
  return out;
}

}  // namespace fewbit
