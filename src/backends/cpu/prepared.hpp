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

// Packed weights and the owners of those that are read in place.
struct WeightMemory {
  AlignedBuffer packed;
  std::vector<std::shared_ptr<const void>> owners;
  std::uint64_t mapped_bytes = 0;

  // Keeps the bytes of a matrix that is not packed.
  void keep(const QuantizedTensor& tensor);
};

struct Expert {
  std::optional<Matrix> gate;
  Matrix up;
  Matrix down;
};

class Moe final : public PreparedMoe {
 public:
  Moe(const Kernels& kernels, const MoeProblem& problem, std::vector<Expert> experts,
      WeightMemory memory)
      : kernels_(kernels),
        problem_(problem),
        experts_(std::move(experts)),
        memory_(std::move(memory)) {}

  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const MoeArgs& args, Executor& executor) const override;
  PreparedInfo info() const override;

 private:
  const Kernels& kernels_;
  MoeProblem problem_;
  std::vector<Expert> experts_;
  WeightMemory memory_;
};

class Linear final : public PreparedLinear {
 public:
  Linear(const Kernels& kernels, const LinearProblem& problem, const Matrix& matrix,
         WeightMemory memory)
      : kernels_(kernels), problem_(problem), matrix_(matrix), memory_(std::move(memory)) {}

  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const LinearArgs& args, Executor& executor) const override;
  PreparedInfo info() const override;

 private:
  const Kernels& kernels_;
  LinearProblem problem_;
  Matrix matrix_;
  WeightMemory memory_;
};

}  // namespace fewbit::cpu
