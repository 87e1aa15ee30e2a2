// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "backends/cpu/multiply_tiles.hpp"
#include "backends/cpu/prepared.hpp"
#include "core/checked.hpp"

namespace fewbit::cpu {
namespace {

// Elements of x below which waking threads to convert them costs more than it saves.
constexpr std::int64_t serial_elements = 1 << 15;

// One pass: up to max_pass_tokens rows of x, in panels.
struct Pass {
  const LinearProblem& problem;
  const Matrix& matrix;
  const std::int32_t* order;  // of the columns; nullptr: as they are
  PanelCut cut;
  std::int64_t tokens;
  const std::uint8_t* x;
  std::uint8_t* y;
  std::byte* panels;

  std::int64_t panel_count() const { return cut.panels(tokens); }
  Range panel(std::int64_t p) const { return {cut.begin(tokens, p), cut.begin(tokens, p + 1)}; }

  // Calls load(row of x, its panel, which of its tokens it is) for a share of the rows.
  template <class Load>
  void for_rows(Range tokens_of_share, const Load& load) const {
    const std::int64_t row_bytes =
        problem.k * conversions_of(problem.activation_dtype).element_bytes;
    for (std::int64_t p = 0; p < panel_count(); ++p) {
      const Range of = panel(p);
      const std::int64_t last = std::min(of.end, tokens_of_share.end);
      for (std::int64_t t = std::max(of.begin, tokens_of_share.begin); t < last; ++t)
        load(x + t * row_bytes, of, t - of.begin);
    }
  }

  // results: of the features and the panel's tokens, 16 features a token.
  void store(Range features, Range of, const float* results) const {
    const PanelConversions& to = conversions_of(problem.output_dtype);
    for (std::int64_t t = of.begin; t < of.end; ++t) {
      to.store(results + (t - of.begin) * 16, features.end - features.begin,
               static_cast<int>(of.end - of.begin),
               y + (t * problem.n + features.begin) * to.element_bytes);
    }
  }
};

// With f32 panels.
struct PanelPass : Pass {
  std::int64_t padded_k() const { return blocks_of(problem.k) * 16; }
  float* data(Range of) const { return reinterpret_cast<float*>(panels) + of.begin * padded_k(); }

  void load(Range tokens_of_share) const {
    const PanelConversions& from = conversions_of(problem.activation_dtype);
    for_rows(tokens_of_share, [&](const std::uint8_t* row, Range of, std::int64_t t) {
      const auto size = static_cast<int>(of.end - of.begin);
      if (order != nullptr)
        from.load_ordered(row, order, problem.k, size, data(of) + t * 16);
      else
        from.load(row, problem.k, size, data(of) + t * 16);
    });
  }

  // Blocks of output features of all tokens; weights of a chunk are reused over the panels.
  void multiply(Range blocks) const {
    alignas(64) float results[panel_rows * 16];
    const std::int64_t chunk_blocks = waiting_blocks(std::min(tokens, cut.most));
    for (std::int64_t b = blocks.begin; b < blocks.end; b += chunk_blocks) {
      const std::int64_t count = std::min(chunk_blocks, blocks.end - b);
      for (std::int64_t p = 0; p < panel_count(); ++p) {
        const Range of = panel(p);
        matrix.multiply(b, count, data(of), static_cast<int>(of.end - of.begin), results);
        store({b * 16, std::min(problem.n, (b + count) * 16)}, of, results);
      }
    }
  }
};

// With tiles of bf16.
struct TilePass : Pass {
  std::uint16_t* data(Range of) const {
    return reinterpret_cast<std::uint16_t*>(panels) + of.begin * tile_row(problem.k);
  }

  void load(Range tokens_of_share) const {
    const std::int64_t row_size = tile_row(problem.k);
    for_rows(tokens_of_share, [&](const std::uint8_t* row, Range of, std::int64_t t) {
      const std::int64_t size = of.end - of.begin;
      const std::int64_t rows = tile_rows(size, t);
      std::uint16_t* to = data(of) + tile_place(size, row_size, t, 0);
      if (order != nullptr)
        tile_load_ordered(row, order, problem.k, rows, to);
      else
        tile_load(row, problem.k, rows, to);
    });
  }

  // Panel by panel, which the second-level cache holds beside the weights that pass.
  void multiply(Range blocks) const {
    alignas(64) float results[2 * max_tile_tokens * 16];
    for (std::int64_t p = 0; p < panel_count(); ++p) {
      const Range of = panel(p);
      const std::int64_t size = of.end - of.begin;
      const std::int64_t step = 2 * max_tile_tokens / size;
      for (std::int64_t b = blocks.begin; b < blocks.end; b += step) {
        const Range chunk{b, std::min(b + step, blocks.end)};
        multiply_tiles(matrix, chunk, {.x = data(of), .tokens = size},
                       {.first = results, .token = 16, .block = size * 16});
        store({b * 16, std::min(problem.n, chunk.end * 16)}, of, results);
      }
    }
  }
};

template <class PassOfKind>
void run_pass(const PassOfKind& pass, Executor& executor) {
  const int workers = executor.threads();
  if (pass.tokens * pass.problem.k < serial_elements) {
    pass.load({0, pass.tokens});
  } else {
    parallel_for(executor, workers,
                 [&](int worker) { pass.load(share(pass.tokens, worker, workers)); });
  }
  parallel_for(executor, workers,
               [&](int worker) { pass.multiply(share(pass.matrix.blocks(), worker, workers)); });
}

}  // namespace

bool Linear::tiles_for(std::int64_t tokens) const {
  return matrix_.tiles() != nullptr && problem_.activation_dtype == DType::bf16 &&
         tokens >= kernels_.least_tile_tokens;
}

// A row of a panel is longer than one of tiles, so that calls of fewer tokens fit too.
Result<std::uint64_t> Linear::workspace_bytes(std::int64_t tokens) const {
  const auto row = checked_mul(blocks_of(problem_.k), std::int64_t{16} * 4);
  static_assert(tile_k * 2 <= 16 * 4);
  const auto rows = row ? checked_mul(*row, std::min(tokens, max_pass_tokens)) : std::nullopt;
  const auto bytes = rows ? checked_add(*rows, tile_slack * 2) : std::nullopt;
  if (bytes) return static_cast<std::uint64_t>(*bytes);
  return Error{
      ErrorCode::limit,
      fmt::format("workspace of {} tokens * {} floats is above 2^63 bytes", tokens, problem_.k),
      problem_.where};
}

Result<void> Linear::run(const LinearArgs& args, Executor& executor) const {
  const std::int64_t x_row = problem_.k * conversions_of(problem_.activation_dtype).element_bytes;
  const std::int64_t y_row = problem_.n * conversions_of(problem_.output_dtype).element_bytes;
  for (std::int64_t first = 0; first < args.tokens; first += max_pass_tokens) {
    const std::int64_t count = std::min(max_pass_tokens, args.tokens - first);
    const bool tiles = tiles_for(count);
    const Pass pass{
        .problem = problem_,
        .matrix = matrix_,
        .order = order_.empty() ? nullptr : order_.data(),
        .cut = tiles ? tile_cut(problem_.k) : PanelCut{.most = matrix_.most_tokens()},
        .tokens = count,
        .x = reinterpret_cast<const std::uint8_t*>(args.x.bytes.data()) + first * x_row,
        .y = reinterpret_cast<std::uint8_t*>(args.y.data()) + first * y_row,
        .panels = args.workspace.data(),
    };
    if (!tiles) {
      run_pass(PanelPass{pass}, executor);
    } else if constexpr (has_tiles) {
      run_pass(TilePass{pass}, executor);
    }
  }
  return {};
}

}  // namespace fewbit::cpu
