// SPDX-License-Identifier: Apache-2.0
// Codes, one an element, to and from 32-bit words: what converters between GPTQ, AWQ and kernel
// layouts are made of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canonical/integer_words.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// Codes outside 0 to 2^bits - 1: an error that names the first, or ored into their neighbours as
// SGLang's packers do.
enum class WideCodes { refuse, spill };

// Codes [rows, columns]; bits divides 32. Code i of a word comes from its low bits on:
//   pack_rows    words [rows * bits / 32, columns], a word from 32 / bits rows
//   pack_cols    words [rows, columns * bits / 32], a word from 32 / bits columns
//   unpack_cols  the inverse of pack_cols; size is that of the codes
// Errors: invalid_argument (bits, a size that does not fill words, a code).
Result<std::vector<std::uint32_t>> pack_rows(std::span<const std::int32_t> codes, MatrixSize size,
                                             int bits, WideCodes wide = WideCodes::refuse);
Result<std::vector<std::uint32_t>> pack_cols(std::span<const std::int32_t> codes, MatrixSize size,
                                             int bits, WideCodes wide = WideCodes::refuse);
Result<std::vector<std::int32_t>> unpack_cols(std::span<const std::uint32_t> words, MatrixSize size,
                                              int bits);

// AWQ GEMM words in GPTQ's order: qweight [k, n / 8] to [k / 8, n], qzeros [groups, n / 8] to the
// same shape with columns in plain order. Errors: invalid_argument (sizes).
struct PlainPack {
  std::vector<std::uint32_t> qweight;
  std::vector<std::uint32_t> qzeros;
};
Result<PlainPack> awq_to_plain_pack(std::span<const std::uint32_t> qweight, MatrixSize codes,
                                    std::span<const std::uint32_t> qzeros, MatrixSize zeros);

// Rows of codes in the order of their groups; rows of one group keep their order.
//   result row i = row order[i], g_idx[order] never falls
// codes [rows, columns], g_idx [rows]. Errors: invalid_argument (sizes).
struct SortedRows {
  std::vector<std::int32_t> codes;
  std::vector<std::int32_t> g_idx;
  std::vector<std::int32_t> order;
};
Result<SortedRows> sort_rows_by_group(std::span<const std::int32_t> codes, MatrixSize size,
                                      std::span<const std::int32_t> g_idx);

}  // namespace fewbit
