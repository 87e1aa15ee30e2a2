// SPDX-License-Identifier: Apache-2.0
// Causal softmax attention of new tokens over all cached positions, grouped-query.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fewbit/executor.hpp"
#include "fewbit/selection.hpp"
#include "fewbit/tensor.hpp"
#include "model/kv_cache.hpp"

namespace fewbit {

struct AttentionShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float scale = 1.0F;  // of the scores

  std::int64_t group() const { return heads / kv_heads; }
};

AttentionTileFn* attention_tile_for(IsaLevel level);

// Scratch memory of one worker, a multiple of 64; empty on overflow.
std::optional<std::uint64_t> attention_scratch_bytes(const AttentionShape& shape);

struct AttentionCall {
  AttentionShape shape;
  AttentionTileFn* tile = nullptr;
  DType dtype = DType::bf16;  // of queries, cache and output
  std::int64_t tokens = 0;
  std::int64_t start = 0;              // position of the first token
  std::span<const std::byte> queries;  // [tokens, heads, head_dim]
  KvLayout layout;
  std::span<const std::byte> cache;  // holds positions [0, start + tokens)
  std::span<std::byte> output;       // [tokens, heads, head_dim]
  int workers = 1;                   // tasks are dealt out to them in turn
  std::span<std::byte> scratch;      // attention_scratch_bytes for each worker
};
// The output of a token depends on neither the number of workers nor the other tokens of the call.
void attend(const AttentionCall& call, Executor& executor);

}  // namespace fewbit
