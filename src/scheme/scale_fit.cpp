// SPDX-License-Identifier: Apache-2.0
#include "scheme/scale_fit.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "core/checked.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

// The scales of one matrix.
struct Grid {
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  std::size_t rank = 0;  // of the stored shape, without the experts
  bool per_expert = false;
};

// Shape of one matrix's scales: [], [a], [a, b] or [a, 1, b, 1].
std::optional<Grid> grid_of(std::span<const std::int64_t> shape) {
  Grid grid;
  grid.rank = shape.size();
  if (shape.empty()) return grid;
  grid.rows = shape[0];
  if (shape.size() == 1) return grid;
  if (shape.size() == 2) {
    grid.cols = shape[1];
    return grid;
  }
  if (shape.size() != 4 || shape[1] != 1 || shape[3] != 1) return std::nullopt;
  grid.cols = shape[2];
  return grid;
}

// [experts, …] of fused experts. A vector an expert belongs to the rows, or to the columns; which,
// is not to be seen when there are as many.
std::optional<Grid> expert_grid(const ScaledMatrix& matrix, const Shape& scale) {
  const std::span<const std::int64_t> shape(scale);
  if (shape.empty() || (shape.size() == 1 && shape[0] == 1 && matrix.experts != 1)) {
    return Grid{};
  }
  if (shape[0] != matrix.experts) return std::nullopt;
  auto grid = grid_of(shape.subspan(1));
  if (!grid) return std::nullopt;
  grid->per_expert = true;
  if (grid->rank == 1 && grid->rows != 1 && matrix.n == matrix.k) return std::nullopt;
  if (grid->rank == 1 && grid->rows == matrix.k && grid->rows != matrix.n) {
    std::swap(grid->rows, grid->cols);
  }
  return grid;
}

constexpr std::int64_t usual_blocks[] = {128, 64, 32, 256, 16, 512, 1024};

// A block of a power of two that gives `count` along `size`; preferred first. Only with one scale
// on the axis more than one fits, and all of those mean the same.
std::optional<std::int64_t> block_of(std::int64_t size, std::int64_t count,
                                     std::int64_t preferred) {
  if (count == size) return 1;
  if (preferred > 0 && ceil_div(size, preferred) == count) return preferred;
  for (const std::int64_t block : usual_blocks) {
    if (ceil_div(size, block) == count) return block;
  }
  return std::nullopt;
}

std::optional<Granularity> fit_blocks(const ScaledMatrix& matrix, const Grid& grid) {
  if (grid.cols == 1 && grid.rows == matrix.n) return Granularity{1, 0};
  if (grid.rows == 1 && grid.cols == matrix.k && matrix.k > 1) return Granularity{0, 1};
  const auto cols = block_of(matrix.k, grid.cols, 0);
  if (!cols && grid.rows == matrix.n && matrix.k % grid.cols == 0) {
    return Granularity{1, matrix.k / grid.cols};
  }
  if (!cols) return std::nullopt;
  const auto rows = block_of(matrix.n, grid.rows, *cols);
  if (!rows) return std::nullopt;
  // Blocks are square, where both axes have more than one.
  if (*rows != 1 && *rows != *cols && grid.rows > 1 && grid.cols > 1) return std::nullopt;
  return Granularity{*rows, *cols};
}

// Quantized in pieces and put together afterwards: more rows of scales than the matrix needs.
std::optional<ScaleFit> fit_pieces(const ScaledMatrix& matrix, const Grid& grid,
                                   Granularity block) {
  constexpr std::int64_t most_pieces = 128;
  if (block.rows < 2 || grid.rows <= ceil_div(matrix.n, block.rows)) return std::nullopt;
  if (grid.cols != ceil_div(matrix.k, block.cols)) return std::nullopt;
  for (std::int64_t pieces = 2; pieces <= most_pieces; ++pieces) {
    if (matrix.n % pieces != 0 || grid.rows % pieces != 0) continue;
    const std::int64_t piece = matrix.n / pieces;
    if (piece < block.rows) break;
    if (ceil_div(piece, block.rows) != grid.rows / pieces) continue;
    ScaleFit fit;
    fit.granularity = {std::gcd(piece, block.rows), block.cols};
    fit.pieces = pieces;
    fit.block_rows = block.rows;
    return fit;
  }
  return std::nullopt;
}

std::optional<ScaleFit> fit_grid(const ScaledMatrix& matrix, const Grid& grid,
                                 const std::optional<Granularity>& declared) {
  ScaleFit fit;
  const bool block = declared && grid.rank != 1 && grid.rank != 0 &&
                     ceil_div(matrix.n, declared->rows) == grid.rows &&
                     ceil_div(matrix.k, declared->cols) == grid.cols;
  if (block) {
    fit.granularity = *declared;
    return fit;
  }
  if (grid.rows == 1 && grid.cols == 1) return fit;
  // Fused gate and up, each with a scale of its own.
  if (matrix.pair && grid.rank == 1 && grid.rows == 2 && matrix.n % 2 == 0 && matrix.n > 2) {
    fit.granularity = {matrix.n / 2, 0};
    return fit;
  }
  // A vector is no grid of blocks.
  if (grid.rank == 1 && grid.rows != matrix.n && grid.cols != matrix.k) return std::nullopt;
  if (const auto found = fit_blocks(matrix, grid)) {
    fit.granularity = *found;
    return fit;
  }
  if (grid.rank < 2) return std::nullopt;
  return fit_pieces(matrix, grid, declared.value_or(usual_block));
}

std::optional<Grid> stored_grid(const ScaledMatrix& matrix, const Shape& scale) {
  if (matrix.n < 1 || matrix.k < 1) return std::nullopt;
  const auto grid = matrix.experts > 0 ? expert_grid(matrix, scale) : grid_of(scale);
  if (!grid || grid->rows < 1 || grid->cols < 1) return std::nullopt;
  return grid;
}

std::optional<ScaleFit> as_stored(std::optional<ScaleFit> fit, const Grid& grid) {
  if (!fit) return std::nullopt;
  fit->rows = grid.rows;
  fit->cols = grid.cols;
  fit->per_expert = grid.per_expert;
  return fit;
}

// The grid of transposed codes, the right way round.
std::optional<Grid> turned(const ScaledMatrix& matrix, const Grid& grid) {
  if (!matrix.transposed || grid.rank < 2) return std::nullopt;
  Grid out = grid;
  std::swap(out.rows, out.cols);
  return out;
}

template <typename Fit>
std::optional<ScaleFit> fit_either_way(const ScaledMatrix& matrix, const Shape& scale,
                                       const Fit& fit) {
  const auto grid = stored_grid(matrix, scale);
  if (!grid) return std::nullopt;
  const std::optional<ScaleFit> straight = as_stored(fit(*grid), *grid);
  const auto other = turned(matrix, *grid);
  if (!other) {
    // One scale a column of a square matrix may as well be one a row.
    const bool column = straight && straight->granularity == Granularity{0, 1};
    return column && matrix.n == matrix.k ? std::nullopt : straight;
  }
  std::optional<ScaleFit> swapped = as_stored(fit(*other), *other);
  if (!swapped) return straight;
  // One scale a column of the matrix, where it may as well be one a row: nobody scales columns.
  if (straight && swapped->granularity == Granularity{0, 1}) return std::nullopt;
  swapped->transposed = true;
  return swapped;
}

std::int64_t groups(std::int64_t size, std::int64_t each) {
  return each <= 0 ? 1 : ceil_div(size, each);
}

}  // namespace

bool is_pair(const Module& module) {
  const std::string_view last = split_dots(module.name).back();
  return module.role == Role::gate_up_proj || module.role == Role::shared_gate_up_proj ||
         last == "gate_up_proj" || last == "w13" || last == "in_proj_ba";
}

std::optional<ScaleFit> fit_scale(const ScaledMatrix& matrix, const Shape& scale,
                                  const std::optional<Granularity>& declared) {
  return fit_either_way(matrix, scale,
                        [&](const Grid& grid) { return fit_grid(matrix, grid, declared); });
}

std::optional<ScaleFit> fit_scale_as(const ScaledMatrix& matrix, const Shape& scale,
                                     const Granularity& granularity,
                                     const std::optional<Granularity>& piece_block) {
  return fit_either_way(matrix, scale, [&](const Grid& grid) -> std::optional<ScaleFit> {
    if (grid.rows == groups(matrix.n, granularity.rows) &&
        grid.cols == groups(matrix.k, granularity.cols)) {
      ScaleFit fit;
      fit.granularity = granularity;
      return fit;
    }
    if (!piece_block) return std::nullopt;
    auto fit = fit_pieces(matrix, grid, *piece_block);
    if (fit && fit->granularity != granularity) return std::nullopt;
    return fit;
  });
}

std::string group_scales_text(std::int64_t experts, std::int64_t n, std::int64_t k,
                              std::int64_t size) {
  return fmt::format("[{}{}, {}], ceil({}/{}) a row",
                     experts > 0 ? fmt::format("{}, ", experts) : "", n, groups(k, size), k, size);
}

std::string scale_shapes_text(const ScaledMatrix& matrix,
                              const std::optional<Granularity>& declared) {
  const Granularity block = declared.value_or(usual_block);
  const std::string lead = matrix.experts > 0 ? fmt::format("{}, ", matrix.experts) : "";
  return fmt::format("one a tensor ({}), a row ([{}{}]) or a block of {}x{} ([{}{}, {}])",
                     matrix.experts > 0 ? fmt::format("[] or [{}]", matrix.experts) : "[] or [1]",
                     lead, matrix.n, block.rows, block.cols, lead, ceil_div(matrix.n, block.rows),
                     ceil_div(matrix.k, block.cols));
}

std::int64_t stored_scale_row(const ScaleFit& fit, std::int64_t n, std::int64_t row) {
  if (fit.pieces <= 1) return row;
  const std::int64_t piece = n / fit.pieces;
  const std::int64_t first = row * fit.granularity.rows;  // row of the matrix
  return first / piece * ceil_div(piece, fit.block_rows) + first % piece / fit.block_rows;
}

}  // namespace fewbit
