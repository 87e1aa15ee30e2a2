// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "backends/cpu/panels.hpp"
#include "backends/cpu/prepared.hpp"
#include "core/checked.hpp"

namespace fewbit::cpu {
namespace {

// Blocks of 16 rows whose results wait on the stack for their conversion.
constexpr std::int64_t chunk_blocks = 8;
// Elements of x below which waking threads to convert them costs more than it saves.
constexpr std::int64_t serial_elements = 1 << 15;

// One pass: up to max_pass_tokens rows of x.
struct Pass {
  const LinearProblem& problem;
  const Matrix& matrix;
  const std::int32_t* order;  // of the columns; nullptr: as they are
  std::int64_t tokens;
  const std::uint8_t* x;
  std::uint8_t* y;
  float* panels;  // [tokens, k padded to 16]

  std::int64_t padded_k() const { return blocks_of(problem.k) * 16; }

  void load(Range tokens_of_share) const {
    const PanelConversions& from = conversions_of(problem.activation_dtype);
    for (std::int64_t p = 0; p < panels_for(tokens); ++p) {
      const Range panel{panel_begin(tokens, p), panel_begin(tokens, p + 1)};
      const std::int64_t last = std::min(panel.end, tokens_of_share.end);
      for (std::int64_t t = std::max(panel.begin, tokens_of_share.begin); t < last; ++t) {
        const std::uint8_t* row = x + t * problem.k * from.element_bytes;
        float* to = panels + panel.begin * padded_k() + (t - panel.begin) * 16;
        const auto size = static_cast<int>(panel.end - panel.begin);
        if (order != nullptr)
          from.load_ordered(row, order, problem.k, size, to);
        else
          from.load(row, problem.k, size, to);
      }
    }
  }

  // Blocks of output features of all tokens; weights of a chunk are reused over the panels.
  void multiply(Range blocks) const {
    alignas(64) float results[chunk_blocks * max_panel_tokens * 16];
    for (std::int64_t b = blocks.begin; b < blocks.end; b += chunk_blocks) {
      const std::int64_t count = std::min(chunk_blocks, blocks.end - b);
      for (std::int64_t p = 0; p < panels_for(tokens); ++p) {
        const Range panel{panel_begin(tokens, p), panel_begin(tokens, p + 1)};
        const auto size = static_cast<int>(panel.end - panel.begin);
        matrix.multiply(b, count, panels + panel.begin * padded_k(), size, results);
        store({b * 16, std::min(problem.n, (b + count) * 16)}, panel, results);
      }
    }
  }

 private:
  void store(Range features, Range panel, const float* results) const {
    const PanelConversions& to = conversions_of(problem.output_dtype);
    for (std::int64_t t = panel.begin; t < panel.end; ++t) {
      to.store(results + (t - panel.begin) * 16, features.end - features.begin,
               static_cast<int>(panel.end - panel.begin),
               y + (t * problem.n + features.begin) * to.element_bytes);
    }
  }
};

}  // namespace

Result<std::uint64_t> Linear::workspace_bytes(std::int64_t tokens) const {
  const auto row = checked_mul(blocks_of(problem_.k), std::int64_t{16} * 4);
  const auto bytes = row ? checked_mul(*row, std::min(tokens, max_pass_tokens)) : std::nullopt;
  if (bytes) return static_cast<std::uint64_t>(*bytes);
  return Error{
      ErrorCode::limit,
      fmt::format("workspace of {} tokens * {} floats is above 2^63 bytes", tokens, problem_.k),
      problem_.where};
}

Result<void> Linear::run(const LinearArgs& args, Executor& executor) const {
  const std::int64_t x_row = problem_.k * conversions_of(problem_.activation_dtype).element_bytes;
  const std::int64_t y_row = problem_.n * conversions_of(problem_.output_dtype).element_bytes;
  const int workers = executor.threads();
  for (std::int64_t first = 0; first < args.tokens; first += max_pass_tokens) {
    const Pass pass{
        .problem = problem_,
        .matrix = matrix_,
        .order = order_.empty() ? nullptr : order_.data(),
        .tokens = std::min(max_pass_tokens, args.tokens - first),
        .x = reinterpret_cast<const std::uint8_t*>(args.x.bytes.data()) + first * x_row,
        .y = reinterpret_cast<std::uint8_t*>(args.y.data()) + first * y_row,
        .panels = reinterpret_cast<float*>(args.workspace.data()),
    };
    if (pass.tokens * problem_.k < serial_elements) {
      pass.load({0, pass.tokens});
    } else {
      parallel_for(executor, workers,
                   [&](int worker) { pass.load(share(pass.tokens, worker, workers)); });
    }
    parallel_for(executor, workers,
                 [&](int worker) { pass.multiply(share(matrix_.blocks(), worker, workers)); });
  }
  return {};
}

}  // namespace fewbit::cpu
