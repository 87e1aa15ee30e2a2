// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.hpp"

#include <algorithm>

#include "model/element.hpp"
#include "model/rope.hpp"
#include "model/row_tasks.hpp"

namespace fewbit {
namespace {

// x += y, rounded once.
void add(DType dtype, std::int64_t width, std::span<std::byte> x, std::span<const std::byte> y,
         Executor& executor) {
  with_element_type(dtype, [&]<class T>(T) {
    const auto sum = elements<T>(x);
    const auto term = elements<T>(y);
    const std::size_t columns = to_size(width);
    for_each_row(executor, static_cast<std::int64_t>(sum.size() / columns), [&](std::int64_t row) {
      for (std::size_t i = to_size(row) * columns; i < (to_size(row) + 1) * columns; ++i) {
        sum[i] = round_to_element<T>(element_value(sum[i]) + element_value(term[i]));
      }
    });
  });
}

}  // namespace

struct Decoder::Buffers {
  std::span<std::byte> x, normed, y;  // [tokens, hidden]
  std::span<float> row;               // [hidden]
  std::span<float> cosine, sine;      // [tokens, rope_dim/2]
  std::span<std::byte> inner;         // of the block that runs
};

Result<Decoder::Buffers> Decoder::carve(Carver& carver, std::int64_t tokens) const {
  const std::int64_t row = hidden_size() * element_bytes(parts_.dtype);
  Buffers buffers;
  buffers.x = carver.take<std::byte>(tokens, row);
  buffers.normed = carver.take<std::byte>(tokens, row);
  buffers.y = carver.take<std::byte>(tokens, row);
  buffers.row = carver.take<float>(hidden_size());
  buffers.cosine = carver.take<float>(tokens, parts_.rope_dim / 2);
  buffers.sine = carver.take<float>(tokens, parts_.rope_dim / 2);
  FEWBIT_TRY(std::uint64_t inner, parts_.head.workspace_bytes(tokens));
  for (const DecoderLayer& layer : parts_.layers) {
    FEWBIT_TRY(const std::uint64_t attention, layer.attention->workspace_bytes(tokens));
    FEWBIT_TRY(const std::uint64_t feed_forward, layer.feed_forward->workspace_bytes(tokens));
    inner = std::max({inner, attention, feed_forward});
  }
  buffers.inner = carver.take<std::byte>(static_cast<std::int64_t>(inner));
  if (!carver.bytes()) return Error{ErrorCode::limit, "the workspace of the model overflows", ""};
  return buffers;
}

Result<std::uint64_t> Decoder::cache_bytes(std::int64_t layer, std::int64_t capacity) const {
  return parts_.layers[to_size(layer)].attention->cache_bytes(capacity);
}

// A backend may run few tokens in another way than many, with more memory.
Result<std::uint64_t> Decoder::workspace_bytes(std::int64_t max_tokens) const {
  std::uint64_t most = 0;
  for (std::int64_t tokens = 1; tokens <= max_tokens; ++tokens) {
    Carver measure;
    FEWBIT_TRY(carve(measure, tokens));
    most = std::max(most, *measure.bytes());
  }
  return most;
}

Result<void> Decoder::embed(std::span<const std::int32_t> ids, std::span<std::byte> x,
                            std::span<float> row) const {
  const std::size_t bytes = x.size() / ids.size();
  for (std::size_t t = 0; t < ids.size(); ++t) {
    FEWBIT_TRY(dequantize_rows(parts_.embedding, ids[t], row));
    with_element_type(parts_.dtype, [&]<class T>(T) {
      std::transform(row.begin(), row.end(), elements<T>(x.subspan(t * bytes, bytes)).begin(),
                     round_to_element<T>);
    });
  }
  return {};
}

Result<void> Decoder::run_layer(const Step& step, const DecoderLayer& layer, const Buffers& buffers,
                                std::span<std::byte> cache) const {
  Executor& executor = *step.executor;
  rms_norm(layer.attention_norm, step.dtype, buffers.x, buffers.normed, executor);
  FEWBIT_TRY(layer.attention->run(step, buffers.normed, cache, buffers.y));
  add(step.dtype, hidden_size(), buffers.x, buffers.y, executor);
  rms_norm(layer.feed_forward_norm, step.dtype, buffers.x, buffers.normed, executor);
  FEWBIT_TRY(layer.feed_forward->run(step, buffers.normed, buffers.y));
  add(step.dtype, hidden_size(), buffers.x, buffers.y, executor);
  return {};
}

Result<void> Decoder::project_logits(const Call& call, const Buffers& buffers) const {
  const auto rows = static_cast<std::int64_t>(call.logits.size()) / vocab_size();
  if (rows == 0) return {};
  const std::size_t bytes = buffers.normed.size() / call.ids.size() * to_size(rows);
  const auto last = buffers.normed.subspan(buffers.normed.size() - bytes);
  return parts_.head.run(rows, activation_view(parts_.dtype, rows, hidden_size(), last),
                         std::as_writable_bytes(call.logits), buffers.inner, *call.executor);
}

Result<void> Decoder::run(const Call& call) const {
  Carver carver(call.workspace);
  const auto tokens = static_cast<std::int64_t>(call.ids.size());
  FEWBIT_TRY(const Buffers buffers, carve(carver, tokens));
  FEWBIT_TRY(embed(call.ids, buffers.x, buffers.row));
  fill_rope(parts_.rope_theta, call.start, to_size(parts_.rope_dim / 2), buffers.cosine,
            buffers.sine);
  const Step step{.dtype = parts_.dtype,
                  .tokens = tokens,
                  .start = call.start,
                  .capacity = call.capacity,
                  .cosine = buffers.cosine,
                  .sine = buffers.sine,
                  .workspace = buffers.inner,
                  .executor = call.executor};
  for (std::int64_t i = 0; i < layers(); ++i) {
    if (call.trace) call.trace(i, buffers.x);
    FEWBIT_TRY(run_layer(step, parts_.layers[to_size(i)], buffers, call.caches[to_size(i)]));
  }
  rms_norm(parts_.final_norm, parts_.dtype, buffers.x, buffers.normed, *call.executor);
  if (call.trace) call.trace(layers(), buffers.normed);
  return project_logits(call, buffers);
}

}  // namespace fewbit
