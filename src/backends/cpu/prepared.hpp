// SPDX-License-Identifier: Apache-2.0
// What preparation makes and the runs use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/cpu/matrix.hpp"
#include "backends/cpu/moe_workspace.hpp"
#include "core/aligned_buffer.hpp"
#include "select/backend.hpp"

namespace fewbit::cpu {

struct Expert {
  std::optional<Matrix> gate;
  Matrix up;
  Matrix down;
  // A value a row, padded to blocks of 16; empty: none.
  std::vector<float> gate_bias;
  std::vector<float> up_bias;
  std::vector<float> down_bias;
  // Act-order: the hidden feature at each place of the columns of gate and up, and the place of
  // each activated feature among the columns of down. Empty: in order.
  std::vector<std::int32_t> hidden_order;
  std::vector<std::int32_t> activated_places;
};

class Moe final : public PreparedMoe {
 public:
  Moe(const MoeProblem& problem, const Kernels& kernels, std::vector<Expert> experts,
      PreparedMemory memory, PreparedInfo info)
      : problem_(problem),
        operand_(operand_choice(kernels, problem)),
        tile_cost_(kernels.tile_cost),
        experts_(std::move(experts)),
        owners_(std::move(memory.owners)),
        info_(std::move(info)) {}

  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const MoeArgs& args, Executor& executor) const override;
  PreparedInfo info() const override { return info_; }

 private:
  MoeProblem problem_;
  OperandChoice operand_;
  BlockCost tile_cost_;
  std::vector<Expert> experts_;
  std::vector<std::shared_ptr<const void>> owners_;
  PreparedInfo info_;
};

class Linear final : public PreparedLinear {
 public:
  Linear(const Kernels& kernels, const LinearProblem& problem, const Matrix& matrix,
         std::vector<std::int32_t> order, AlignedBuffer packed, Tensor plain)
      : kernels_(kernels),
        problem_(problem),
        matrix_(matrix),
        order_(std::move(order)),
        packed_(std::move(packed)),
        plain_(std::move(plain)) {}

  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const LinearArgs& args, Executor& executor) const override;
  PreparedInfo info() const override;

 private:
  bool tiles_for(std::int64_t tokens) const;

  const Kernels& kernels_;
  LinearProblem problem_;
  Matrix matrix_;
  std::vector<std::int32_t> order_;  // act-order: column of x at each place
  AlignedBuffer packed_;
  Tensor plain_;  // 16/32-bit values, read in place
};

}  // namespace fewbit::cpu
