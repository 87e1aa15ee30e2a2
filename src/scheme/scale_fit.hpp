// SPDX-License-Identifier: Apache-2.0
// What the shape of a scale tensor says: which weights of a matrix [n, k] share a scale.
#pragma once

#include <optional>
#include <string>

#include "fewbit/scheme.hpp"

namespace fewbit {

// The block of nearly all block-quantized checkpoints.
inline constexpr Granularity usual_block{128, 128};

// The matrices that scales belong to; experts > 0: that many of them in one tensor.
struct ScaledMatrix {
  std::int64_t experts = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transposed = false;  // stored as [experts, k, n]
  bool pair = false;        // two matrices one above the other, as gate and up are
};

// Whether a module holds two matrices of as many rows, by its role or name.
bool is_pair(const Module& module);

// Scales of one matrix as stored: rows x cols of them. `per_expert`: the tensor begins with one
// such grid an expert, otherwise all experts share it.
struct ScaleFit {
  Granularity granularity;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool per_expert = false;
  // The grid stands the other way round, [cols, rows], as the codes do.
  bool transposed = false;
  // Above 1: the matrix was quantized in that many pieces of n / pieces rows (of a block at least),
  // each with its own grid below the one before; granularity.rows divides both a piece and a stored
  // block, so stored rows are to be repeated (stored_scale_row).
  std::int64_t pieces = 1;
  std::int64_t block_rows = 0;  // of the stored grid, when pieces > 1
};

// "[64, 3], ceil(80/32) a row": the scales of groups of `size` columns.
std::string group_scales_text(std::int64_t experts, std::int64_t n, std::int64_t k,
                              std::int64_t size);

// Understands [], [1], [n], [n, 1], [ceil(n/b0), ceil(k/b1)] for the block that the config declares
// and for blocks of powers of two, [r, 1, c, 1], groups of g along k, one scale a half of the rows
// ([2], of a pair), and all of them behind [experts]. Beside transposed codes a
// grid is read as they are, and else as [rows, columns]. Tensors outrank `declared`. Empty: none of
// these, or two of them ([experts, n] with n = k).
std::optional<ScaleFit> fit_scale(const ScaledMatrix& matrix, const Shape& scale,
                                  const std::optional<Granularity>& declared);

// The same for weights whose canonical granularity is known already. Pieces are considered only
// where the block that they were quantized in is given.
std::optional<ScaleFit> fit_scale_as(const ScaledMatrix& matrix, const Shape& scale,
                                     const Granularity& granularity,
                                     const std::optional<Granularity>& piece_block = std::nullopt);

// The shapes that would do, for messages.
std::string scale_shapes_text(const ScaledMatrix& matrix,
                              const std::optional<Granularity>& declared);

// Stored row for row `row` of the canonical grid.
std::int64_t stored_scale_row(const ScaleFit& fit, std::int64_t n, std::int64_t row);

}  // namespace fewbit
