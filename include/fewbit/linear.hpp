// SPDX-License-Identifier: Apache-2.0
// A dense linear layer y = x W^T on the same backends and kernels as the experts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "fewbit/executor.hpp"
#include "fewbit/moe.hpp"
#include "fewbit/quantized.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {

struct LinearProblem {
  std::int64_t n = 0;
  std::int64_t k = 0;
  Scheme weight;
  DType activation_dtype = DType::bf16;  // of x
  DType output_dtype = DType::bf16;      // of y: bf16, f16 or f32
  std::int64_t max_tokens = 1;
  std::string where;  // module name for messages
};

class PreparedLinear;

class LinearLayer {
 public:
  // Picks the first backend of the ordered list that can run it (or the forced one, as
  // select_backend). Errors as select_backend and MoeLayer::prepare.
  static Result<LinearLayer> prepare(const LinearProblem& problem, const QuantizedTensor& weight,
                                     const DeviceInfo& device, const SelectOptions& options,
                                     Executor& executor);
  LinearLayer(LinearLayer&&) noexcept;
  LinearLayer& operator=(LinearLayer&&) noexcept;
  ~LinearLayer();

  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const;
  // Of a call in CUDA memory. Error invalid_argument: the backend takes none.
  Result<std::uint64_t> device_workspace_bytes(std::int64_t tokens) const;
  // x [tokens, k], y [tokens, n]; workspace >= workspace_bytes(tokens), 64-byte aligned.
  // With x.device a CUDA device all three lie in its memory, workspace at least
  // device_workspace_bytes(tokens) and 1024-byte aligned; the work is put on `stream`, a
  // cudaStream_t, and run returns before it is done.
  Result<void> run(std::int64_t tokens, const TensorView& x, std::span<std::byte> y,
                   std::span<std::byte> workspace, Executor& executor,
                   void* stream = nullptr) const;

  const LinearProblem& problem() const { return problem_; }
  PreparedInfo info() const;

 private:
  LinearLayer(LinearProblem problem, std::unique_ptr<PreparedLinear> prepared);
  LinearProblem problem_;
  std::unique_ptr<PreparedLinear> prepared_;
};

}  // namespace fewbit
