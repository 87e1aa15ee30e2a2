// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "backends/cpu/cpu.hpp"
#include "backends/cpu/prepared.hpp"
#include "core/checked.hpp"

namespace fewbit::cpu {
namespace {

// Where the packed bytes of each matrix go: one after the other.
class Offsets {
 public:
  // Error limit when the sum overflows.
  Result<std::uint64_t> add(const QuantizedTensor& tensor, const std::string& where) {
    const std::uint64_t offset = total_;
    const auto bytes = Matrix::packed_bytes(tensor.scheme, tensor.n, tensor.k);
    const auto sum = bytes ? checked_add(total_, *bytes) : std::nullopt;
    if (!sum) {
      return Error{ErrorCode::limit,
                   fmt::format("packed weights overflow 2^64 bytes at a matrix [{}, {}]", tensor.n,
                               tensor.k),
                   where};
    }
    total_ = *sum;
    return offset;
  }
  std::uint64_t total() const { return total_; }

 private:
  std::uint64_t total_ = 0;
};

struct ExpertOffsets {
  std::uint64_t gate = 0;
  std::uint64_t up = 0;
  std::uint64_t down = 0;
};

Result<AlignedBuffer> allocate(std::uint64_t bytes) {
  if (bytes == 0) return AlignedBuffer{};
  return AlignedBuffer::allocate(bytes);
}

}  // namespace

void WeightMemory::keep(const QuantizedTensor& tensor) {
  if (is_f4(tensor.scheme)) return;
  owners.push_back(tensor.codes.owner);
  mapped_bytes += tensor.codes.view.bytes.size();
}

Result<std::unique_ptr<PreparedMoe>> prepare_moe(IsaLevel level, const MoeProblem& problem,
                                                 const MoeWeights& weights, Executor& executor) {
  Offsets offsets;
  WeightMemory memory;
  std::vector<ExpertOffsets> places(weights.experts.size());
  for (std::size_t e = 0; e < places.size(); ++e) {
    const ExpertWeights& expert = weights.experts[e];
    if (expert.gate) {
      FEWBIT_TRY(places[e].gate, offsets.add(*expert.gate, problem.where));
      memory.keep(*expert.gate);
    }
    FEWBIT_TRY(places[e].up, offsets.add(expert.up, problem.where));
    FEWBIT_TRY(places[e].down, offsets.add(expert.down, problem.where));
    memory.keep(expert.up);
    memory.keep(expert.down);
  }
  FEWBIT_TRY(memory.packed, allocate(offsets.total()));

  const Kernels& kernels = kernels_of(level);
  std::vector<Expert> experts(places.size());
  std::byte* base = memory.packed.data();
  parallel_for(executor, static_cast<int>(places.size()), [&](int index) {
    const auto e = static_cast<std::size_t>(index);
    const ExpertWeights& from = weights.experts[e];
    if (from.gate) experts[e].gate = Matrix::make(kernels, *from.gate, base + places[e].gate);
    experts[e].up = Matrix::make(kernels, from.up, base + places[e].up);
    experts[e].down = Matrix::make(kernels, from.down, base + places[e].down);
  });
  return std::unique_ptr<PreparedMoe>(
      std::make_unique<Moe>(kernels, problem, std::move(experts), std::move(memory)));
}

Result<std::unique_ptr<PreparedLinear>> prepare_linear(IsaLevel level, const LinearProblem& problem,
                                                       const QuantizedTensor& weight,
                                                       Executor& /*executor*/) {
  Offsets offsets;
  WeightMemory memory;
  FEWBIT_TRY(const std::uint64_t place, offsets.add(weight, problem.where));
  memory.keep(weight);
  FEWBIT_TRY(memory.packed, allocate(offsets.total()));
  const Kernels& kernels = kernels_of(level);
  const Matrix matrix = Matrix::make(kernels, weight, memory.packed.data() + place);
  return std::unique_ptr<PreparedLinear>(
      std::make_unique<Linear>(kernels, problem, matrix, std::move(memory)));
}

PreparedInfo Moe::info() const {
  std::string layout = layout_name(problem_.gate_up);
  if (layout != layout_name(problem_.down))
    layout += fmt::format(", {}", layout_name(problem_.down));
  return {.backend = kernels_.backend,
          .layout = layout,
          .owned_bytes = memory_.packed.size(),
          .mapped_bytes = memory_.mapped_bytes};
}

PreparedInfo Linear::info() const {
  return {.backend = kernels_.backend,
          .layout = layout_name(problem_.weight),
          .owned_bytes = memory_.packed.size(),
          .mapped_bytes = memory_.mapped_bytes};
}

}  // namespace fewbit::cpu
