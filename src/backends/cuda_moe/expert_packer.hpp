// SPDX-License-Identifier: Apache-2.0
// Canonical matrices to cells, on the device.
#pragma once

#include "backends/cuda_moe/cuda_moe.hpp"
#include "device/device.hpp"

namespace fewbit::cuda {

// One matrix's codes and scales on the device, packed from there.
class ExpertPacker {
 public:
  ExpertPacker(const MoeProblem& problem, const device::Stream& stream)
      : problem_(problem), stream_(stream) {}

  // matrix 0: gate and up, 1: down.
  Result<void> pack(const ExpertWeights& expert, int matrix, std::byte* to);
  // After all experts: waits for them. Error unsupported: a code was NaN.
  Result<void> check() const;

 private:
  Result<void> pack_f4(const ExpertWeights& expert, int matrix, std::byte* to);
  Result<void> pack_int(const ExpertWeights& expert, int matrix, std::byte* to);
  Result<void> pack_f8(const ExpertWeights& expert, int matrix, std::byte* to);
  Result<const std::uint8_t*> copy(const std::uint8_t* from, std::size_t bytes,
                                   device::Buffer& to) const;

  const MoeProblem& problem_;
  const device::Stream& stream_;
  device::Buffer memory_[2][6];
  device::Buffer nan_;
};

}  // namespace fewbit::cuda
