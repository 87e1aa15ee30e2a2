// SPDX-License-Identifier: Apache-2.0
// Layers of the reference backend: the canonical tensors as they are.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backends/reference/row_reader.hpp"
#include "core/carver.hpp"
#include "select/backend.hpp"

namespace fewbit::reference {

// Work is cut into this many tasks whatever the number of threads, each with scratch of its own.
inline constexpr int tasks = 32;

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
// The rows of one task.
constexpr Range rows_of_task(std::int64_t rows, int task) {
  const std::int64_t whole = rows / tasks;
  const std::int64_t rest = rows % tasks;
  const auto start = [&](std::int64_t t) { return t * whole + (t < rest ? t : rest); };
  return {.begin = start(task), .end = start(task + 1)};
}

struct Expert {
  std::optional<RowReader> gate;
  RowReader up;
  RowReader down;
  // A value a row, added in double; empty: none.
  std::vector<float> gate_bias;
  std::vector<float> up_bias;
  std::vector<float> down_bias;
};
inline double bias_of(const std::vector<float>& bias, std::int64_t row) {
  return bias.empty() ? 0.0 : double{bias[static_cast<std::size_t>(row)]};
}

struct MoeScratch {
  std::span<std::int32_t> counts;   // [experts]
  std::span<std::int32_t> offsets;  // [experts + 1]
  std::span<std::int32_t> routes;   // [tokens * top_k]
  std::span<float> hidden;          // [tokens, hidden_size]
  std::span<float> activated;       // [tokens * top_k, intermediate_size], rounded values
  std::span<float> rows;            // [tasks, 2 * max(hidden_size, intermediate_size)]
  std::span<double> sums;           // [tasks, tokens * top_k]
};
MoeScratch carve(const MoeProblem& problem, std::int64_t tokens, Carver& carver);

class ReferenceMoe final : public PreparedMoe {
 public:
  // The experts may borrow from `memory`.
  ReferenceMoe(MoeProblem problem, std::span<const ExpertWeights> experts, PreparedMemory memory);
  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const MoeArgs& args, Executor& executor) const override;
  PreparedInfo info() const override { return info_; }

 private:
  MoeProblem problem_;
  std::vector<Expert> experts_;
  std::vector<std::shared_ptr<const void>> owners_;
  PreparedInfo info_;
};

struct LinearScratch {
  std::span<float> x;     // [tokens, k]
  std::span<float> rows;  // [tasks, k]
};
LinearScratch carve(const LinearProblem& problem, std::int64_t tokens, Carver& carver);

class ReferenceLinear final : public PreparedLinear {
 public:
  ReferenceLinear(LinearProblem problem, const QuantizedTensor& weight);
  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const LinearArgs& args, Executor& executor) const override;
  PreparedInfo info() const override;

 private:
  LinearProblem problem_;
  RowReader weight_;
};

// A row that could not be dequantized although selection accepted its scheme.
Error unreadable_row(const std::string& where);

}  // namespace fewbit::reference
