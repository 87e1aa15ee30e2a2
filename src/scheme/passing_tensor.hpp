// SPDX-License-Identifier: Apache-2.0
// Values that are looked at once.
#pragma once

#include "fewbit/checkpoint.hpp"

namespace fewbit {

// The bytes of a tensor while the object lives; then its pages leave this process's memory. Small
// tensors of thousands of modules stand in as many pages, which would add up to most of the memory
// that identifying and validating take.
class PassingTensor {
 public:
  // Borrows both.
  PassingTensor(const Checkpoint& checkpoint, const TensorInfo& info)
      : checkpoint_(checkpoint), info_(info), tensor_(checkpoint.tensor(info)) {}
  PassingTensor(const PassingTensor&) = delete;
  PassingTensor& operator=(const PassingTensor&) = delete;
  ~PassingTensor() { checkpoint_.release(info_); }

  const TensorView& view() const { return tensor_.view; }
  std::span<const std::byte> bytes() const { return tensor_.view.bytes; }

 private:
  const Checkpoint& checkpoint_;
  const TensorInfo& info_;
  Tensor tensor_;
};

}  // namespace fewbit
