// SPDX-License-Identifier: Apache-2.0
// Grouped-query attention with rotary positions and, where the family has it, a norm of each query
// and key head.
#pragma once

#include <optional>

#include "core/carver.hpp"
#include "fewbit/linear.hpp"
#include "model/attention_core.hpp"
#include "model/blocks.hpp"
#include "model/rms_norm.hpp"

namespace fewbit {

struct GroupedQueryWeights {
  LinearLayer q, k, v, o;
  std::optional<RmsNorm> q_norm, k_norm;  // [head_dim]
};

class GroupedQueryAttention final : public AttentionBlock {
 public:
  // workers: most tasks of attention at once.
  GroupedQueryAttention(AttentionShape shape, GroupedQueryWeights weights, DType dtype,
                        AttentionTileFn* tile, int workers);
  Result<std::uint64_t> cache_bytes(std::int64_t capacity) const override;
  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const Step& step, std::span<const std::byte> x, std::span<std::byte> cache,
                   std::span<std::byte> y) const override;

 private:
  struct Buffers;
  Result<Buffers> carve(Carver& carver, std::int64_t tokens) const;
  KvLayout layout(std::int64_t capacity) const;
  // Norm and rotation of the new queries, in place, and of the new keys, into the cache.
  template <class T>
  void place_tokens(const Step& step, const Buffers& buffers, std::span<T> cache) const;
  template <class T>
  void place_token(const Step& step, const Buffers& buffers, std::span<T> cache,
                   std::int64_t token) const;

  AttentionShape shape_;
  GroupedQueryWeights weights_;
  DType dtype_;
  AttentionTileFn* tile_;
  int workers_;
};

}  // namespace fewbit
