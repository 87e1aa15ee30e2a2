// SPDX-License-Identifier: Apache-2.0
#include "model/attention.hpp"

#include <algorithm>
#include <utility>

#include "model/rope.hpp"
#include "model/row_tasks.hpp"

namespace fewbit {

struct GroupedQueryAttention::Buffers {
  std::span<std::byte> q, k, v, context;  // [tokens, heads or kv_heads, head_dim]
  std::span<float> head;                  // [tokens, head_dim]
  std::span<std::byte> attention;         // scratch of all workers
  std::span<std::byte> linear;            // of the projection that runs
};

GroupedQueryAttention::GroupedQueryAttention(AttentionShape shape, GroupedQueryWeights weights,
                                             DType dtype, AttentionTileFn* tile, int workers)
    : shape_(shape), weights_(std::move(weights)), dtype_(dtype), tile_(tile), workers_(workers) {}

KvLayout GroupedQueryAttention::layout(std::int64_t capacity) const {
  return {.kv_heads = shape_.kv_heads, .head_dim = shape_.head_dim, .capacity = capacity};
}

Result<std::uint64_t> GroupedQueryAttention::cache_bytes(std::int64_t capacity) const {
  Carver measure;
  const KvLayout place = layout(capacity);
  measure.take<float>(place.positions(), 2 * shape_.kv_heads * shape_.head_dim);
  const auto bytes = measure.bytes();
  if (!bytes) return Error{ErrorCode::limit, "the size of a key-value cache overflows", ""};
  return dtype_ == DType::f32 ? *bytes : *bytes / 2;
}

Result<GroupedQueryAttention::Buffers> GroupedQueryAttention::carve(Carver& carver,
                                                                    std::int64_t tokens) const {
  const std::int64_t row = shape_.head_dim * element_bytes(dtype_);
  Buffers buffers;
  buffers.q = carver.take<std::byte>(tokens, shape_.heads * row);
  buffers.k = carver.take<std::byte>(tokens, shape_.kv_heads * row);
  buffers.v = carver.take<std::byte>(tokens, shape_.kv_heads * row);
  buffers.context = carver.take<std::byte>(tokens, shape_.heads * row);
  buffers.head = carver.take<float>(tokens, shape_.head_dim);
  const auto scratch = attention_scratch_bytes(shape_);
  const Error overflow{ErrorCode::limit, "the workspace of attention overflows",
                       weights_.q.problem().where};
  if (!scratch) return overflow;
  buffers.attention = carver.take<std::byte>(workers_, static_cast<std::int64_t>(*scratch));
  std::uint64_t linear = 0;
  for (const LinearLayer* layer : {&weights_.q, &weights_.k, &weights_.v, &weights_.o}) {
    FEWBIT_TRY(const std::uint64_t bytes, layer->workspace_bytes(tokens));
    linear = std::max(linear, bytes);
  }
  buffers.linear = carver.take<std::byte>(static_cast<std::int64_t>(linear));
  if (!carver.bytes()) return overflow;
  return buffers;
}

Result<std::uint64_t> GroupedQueryAttention::workspace_bytes(std::int64_t tokens) const {
  Carver measure;
  FEWBIT_TRY(carve(measure, tokens));
  return *measure.bytes();
}

template <class T>
void GroupedQueryAttention::place_token(const Step& step, const Buffers& buffers,
                                        std::span<T> cache, std::int64_t token) const {
  const std::size_t dim = to_size(shape_.head_dim);
  const auto head_of = [&](std::span<std::byte> rows, std::int64_t heads, std::int64_t head) {
    return elements<T>(rows).subspan(to_size(token * heads + head) * dim, dim);
  };
  const auto cosine = step.cosine.subspan(to_size(token) * dim / 2, dim / 2);
  const auto sine = step.sine.subspan(to_size(token) * dim / 2, dim / 2);
  const auto values = buffers.head.subspan(to_size(token) * dim, dim);
  const auto norm_and_rotate = [&](std::span<const T> head, const std::optional<RmsNorm>& norm) {
    const float factor = norm ? rms_factor(head, norm->epsilon) : 1.0F;
    for (std::size_t d = 0; d < dim; ++d) {
      const float value = element_value(head[d]);
      values[d] =
          norm ? element_value(round_to_element<T>(value * factor * norm->weight[d])) : value;
    }
    rotate_halves(values, cosine, sine);
  };
  for (std::int64_t head = 0; head < shape_.heads; ++head) {
    const auto q = head_of(buffers.q, shape_.heads, head);
    norm_and_rotate(q, weights_.q_norm);
    for (std::size_t d = 0; d < dim; ++d) q[d] = round_to_element<T>(values[d]);
  }
  const KvLayout place = layout(step.capacity);
  for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
    norm_and_rotate(head_of(buffers.k, shape_.kv_heads, head), weights_.k_norm);
    T* key = cache.data() + place.key(head, step.start + token);
    for (std::size_t d = 0; d < dim; ++d) {
      key[d * attention_keys] = round_to_element<T>(values[d]);
    }
    const auto v = head_of(buffers.v, shape_.kv_heads, head);
    std::copy(v.begin(), v.end(), cache.data() + place.value(head, step.start + token));
  }
}

template <class T>
void GroupedQueryAttention::place_tokens(const Step& step, const Buffers& buffers,
                                         std::span<T> cache) const {
  for_each_row(*step.executor, step.tokens,
               [&](std::int64_t token) { place_token<T>(step, buffers, cache, token); });
}

Result<void> GroupedQueryAttention::run(const Step& step, std::span<const std::byte> x,
                                        std::span<std::byte> cache, std::span<std::byte> y) const {
  Carver carver(step.workspace);
  FEWBIT_TRY(const Buffers buffers, carve(carver, step.tokens));
  const auto project = [&](const LinearLayer& layer, std::span<const std::byte> from,
                           std::span<std::byte> to) {
    return layer.run(step.tokens, activation_view(dtype_, step.tokens, layer.problem().k, from), to,
                     buffers.linear, *step.executor);
  };
  FEWBIT_TRY(project(weights_.q, x, buffers.q));
  FEWBIT_TRY(project(weights_.k, x, buffers.k));
  FEWBIT_TRY(project(weights_.v, x, buffers.v));
  with_element_type(dtype_,
                    [&]<class T>(T) { place_tokens<T>(step, buffers, elements<T>(cache)); });
  attend({.shape = shape_,
          .tile = tile_,
          .dtype = dtype_,
          .tokens = step.tokens,
          .start = step.start,
          .queries = buffers.q,
          .layout = layout(step.capacity),
          .cache = cache,
          .output = buffers.context,
          .workers = workers_,
          .scratch = buffers.attention},
         *step.executor);
  return project(weights_.o, buffers.context, y);
}

}  // namespace fewbit
