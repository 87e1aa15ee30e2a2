// SPDX-License-Identifier: Apache-2.0
// What preparation makes and the runs use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/cpu/matrix.hpp"
#include "core/aligned_buffer.hpp"
#include "select/backend.hpp"

namespace fewbit::cpu {

struct Expert {
  std::optional<Matrix> gate;
  Matrix up;
  Matrix down;
};

class Moe final : public PreparedMoe {
 public:
  Moe(const MoeProblem& problem, std::vector<Expert> experts, PreparedMemory memory,
      PreparedInfo info)
      : problem_(problem),
        experts_(std::move(experts)),
        owners_(std::move(memory.owners)),
        info_(std::move(info)) {}

  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const MoeArgs& args, Executor& executor) const override;
  PreparedInfo info() const override { return info_; }

 private:
  MoeProblem problem_;
  std::vector<Expert> experts_;
  std::vector<std::shared_ptr<const void>> owners_;
  PreparedInfo info_;
};

class Linear final : public PreparedLinear {
 public:
  Linear(const Kernels& kernels, const LinearProblem& problem, const Matrix& matrix,
         AlignedBuffer packed, Tensor plain)
      : kernels_(kernels),
        problem_(problem),
        matrix_(matrix),
        packed_(std::move(packed)),
        plain_(std::move(plain)) {}

  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const LinearArgs& args, Executor& executor) const override;
  PreparedInfo info() const override;

 private:
  const Kernels& kernels_;
  LinearProblem problem_;
  Matrix matrix_;
  AlignedBuffer packed_;  // e2m1
  Tensor plain_;          // the others, read in place
};

}  // namespace fewbit::cpu
