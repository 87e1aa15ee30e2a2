// SPDX-License-Identifier: Apache-2.0
// The two kinds of block that a decoder layer is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// What every block of one call shares.
struct Step {
  DType dtype = DType::bf16;  // of activations
  std::int64_t tokens = 0;
  std::int64_t start = 0;               // position of the first token
  std::int64_t capacity = 0;            // positions of the sequence
  std::span<const float> cosine, sine;  // [tokens, head_dim/2]
  std::span<std::byte> workspace;       // aligned to 64 bytes
  Executor* executor = nullptr;
};

class AttentionBlock {
 public:
  virtual ~AttentionBlock() = default;
  // Memory that one layer keeps of a sequence. Error limit.
  virtual Result<std::uint64_t> cache_bytes(std::int64_t capacity) const = 0;
  virtual Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const = 0;
  // Appends step.tokens positions to the cache. x, y [tokens, hidden].
  virtual Result<void> run(const Step& step, std::span<const std::byte> x,
                           std::span<std::byte> cache, std::span<std::byte> y) const = 0;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const = 0;
  // x, y [tokens, hidden].
  virtual Result<void> run(const Step& step, std::span<const std::byte> x,
                           std::span<std::byte> y) const = 0;
};

// A view of activations, for LinearLayer and MoeLayer.
inline TensorView activation_view(DType dtype, std::int64_t rows, std::int64_t cols,
                                  std::span<const std::byte> bytes) {
  return {dtype, {rows, cols}, bytes, {}};
}

}  // namespace fewbit
