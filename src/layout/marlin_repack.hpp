// SPDX-License-Identifier: Apache-2.0
// One matrix of GPTQ or AWQ words, zero points, scales or bias -> what Marlin kernels read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fewbit/result.hpp"
#include "layout/code_rows.hpp"
#include "layout/padded_matrix.hpp"
#include "layout/place.hpp"
#include "layout/scale_grid.hpp"
#include "layout/word_source.hpp"

namespace fewbit {

enum class MarlinActivation { bits16, int8, f8_e4m3 };
struct MarlinCodes {
  WordSource source = WordSource::gptq;
  int bits = 4;  // or 8
  MarlinActivation activation = MarlinActivation::bits16;
};

// Bytes of the codes as tiles: the same for every kind.
constexpr std::int64_t marlin_tile_bytes(Dims dims, int bits) {
  return dims.n * (dims.k * bits / 8);
}

// Whether the matrix `to` has tiles, and `from` fills words. Errors invalid_argument (where: name):
// bits; n not a multiple of 64; k not one of 16, for 8-bit activations of 32; an order together
// with 8-bit activations (unsupported), of another length, or that is no permutation of k.
Result<void> check_marlin_codes(const std::string& name, const MarlinCodes& codes,
                                const PaddedMatrix& matrix);

// words: the stored matrix; tiles: marlin_tile_bytes(matrix.to, bits), all written, padding is
// code 0. Precondition: check_marlin_codes.
void marlin_repack(const MarlinCodes& codes, const PaddedMatrix& matrix,
                   std::span<const std::byte> words, std::span<std::byte> tiles);

// The same from rows of codes of 4 or 8 bits, each part of the rows for itself, in the stored order
// and for 16-bit activations; signed_codes: 8 or 128 is added. Precondition: check_marlin_codes for
// the matrix of all parts, and each lies within it.
void marlin_repack_rows(int bits, bool signed_codes, std::span<const CodeRows> parts, Dims to,
                        std::span<std::byte> tiles);

// Where vLLM's bytes mean other weights than the source: the exact ones, or its own.
enum class MarlinRules { exact, as_vllm };

// The same for FP8 activations and 4-bit codes: each code becomes marlin_fp8_code of it and its
// zero point. zeros: words as the source has them, with k = groups; empty: 8 for all.
// Returns how many codes the kernels can't hold (exact rules); these become 0.
struct MarlinFp8Zeros {
  std::span<const std::byte> words;
  std::int64_t groups = 1;
};
struct MarlinFp8Job {
  WordSource source = WordSource::gptq;
  MarlinRules rules = MarlinRules::exact;
  MarlinFp8Zeros zeros;
};
std::int64_t marlin_repack_fp8(const MarlinFp8Job& job, const PaddedMatrix& matrix,
                               std::span<const std::byte> words, std::span<std::byte> tiles);

// Zero points; dims.k = groups, to.n a multiple of 64. words and out: k * n * bits / 8 bytes of
// `from` and `to`.
void marlin_zero_points(const MarlinCodes& codes, const PaddedMatrix& groups,
                        std::span<const std::byte> words, std::span<std::byte> out);

// Which order the kernels read scales in: 8-bit activations always the single one.
ScaleOrder marlin_scale_order(std::int64_t k, std::int64_t group_size, MarlinActivation activation);
// 16-bit scales [groups, n], or a bias (one group, ScaleOrder::single).
void marlin_scales(ScaleOrder order, const PaddedMatrix& groups, std::span<const std::byte> scales,
                   std::span<std::byte> out);

// intermediate_size rounded up to a multiple of the tiles and of the groups; group_size <= 0: one
// group.
std::int64_t marlin_padded_intermediate(std::int64_t intermediate_size, std::int64_t group_size);

}  // namespace fewbit
