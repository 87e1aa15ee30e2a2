// SPDX-License-Identifier: Apache-2.0
#include "model/attention_core.hpp"

#include <algorithm>
#include <limits>

#include "core/carver.hpp"
#include "model/element.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t rows_of_a_task = 64;

std::int64_t padded_dim(const AttentionShape& shape) {
  return round_up(shape.head_dim, std::int64_t{attention_dim_tile});
}
std::int64_t tokens_of_a_task(const AttentionShape& shape) {
  return std::max(std::int64_t{1}, rows_of_a_task / shape.group());
}
std::int64_t padded_rows(const AttentionShape& shape, std::int64_t tokens) {
  return round_up(tokens * shape.group(), std::int64_t{attention_row_tile});
}

// One worker's arrays.
struct Scratch {
  std::span<float> queries, keys, values, scores, accumulator, maximum, sum;
  std::span<std::int32_t> visible;
};

// Without memory in the carver: measures.
Scratch carve_scratch(Carver& carver, const AttentionShape& shape) {
  const std::int64_t rows = padded_rows(shape, tokens_of_a_task(shape));
  const std::int64_t pitch = padded_dim(shape);
  Scratch scratch;
  scratch.queries = carver.take<float>(rows, shape.head_dim);
  scratch.keys = carver.take<float>(shape.head_dim, attention_keys);
  scratch.values = carver.take<float>(attention_keys, pitch);
  scratch.scores = carver.take<float>(rows, attention_keys);
  scratch.accumulator = carver.take<float>(rows, pitch);
  scratch.maximum = carver.take<float>(rows);
  scratch.sum = carver.take<float>(rows);
  scratch.visible = carver.take<std::int32_t>(rows);
  return scratch;
}

// The queries of some tokens for one key-value head. Row r is token r / group, head r % group.
struct Task {
  std::int64_t kv_head = 0;
  std::int64_t first_token = 0;
  std::int64_t tokens = 0;
};

Task task_at(const AttentionCall& call, std::int64_t index) {
  const std::int64_t step = tokens_of_a_task(call.shape);
  Task task;
  task.kv_head = index % call.shape.kv_heads;
  task.first_token = index / call.shape.kv_heads * step;
  task.tokens = std::min(step, call.tokens - task.first_token);
  return task;
}

// First element of a row in queries and output.
std::size_t row_place(const AttentionCall& call, const Task& task, std::int64_t row) {
  const AttentionShape& shape = call.shape;
  const std::int64_t token = task.first_token + row / shape.group();
  const std::int64_t head = task.kv_head * shape.group() + row % shape.group();
  return to_size((token * shape.heads + head) * shape.head_dim);
}

template <class T>
void load_queries(const AttentionCall& call, const Task& task, Scratch& scratch) {
  const AttentionShape& shape = call.shape;
  const std::int64_t rows = task.tokens * shape.group();
  const std::int64_t padded = padded_rows(shape, task.tokens);
  const auto all = elements<T>(call.queries);
  for (std::int64_t row = 0; row < padded; ++row) {
    const auto to = scratch.queries.subspan(to_size(row * shape.head_dim), to_size(shape.head_dim));
    if (row < rows) {
      const auto from = all.subspan(row_place(call, task, row), to_size(shape.head_dim));
      for (std::size_t d = 0; d < to.size(); ++d) to[d] = element_value(from[d]) * shape.scale;
    } else {
      std::fill(to.begin(), to.end(), 0.0F);
    }
  }
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  std::fill_n(scratch.maximum.begin(), padded, lowest);
  std::fill_n(scratch.sum.begin(), padded, 0.0F);
  std::fill_n(scratch.accumulator.begin(), padded * padded_dim(shape), 0.0F);
}

// Keys and values of a block as f32.
template <class T>
void load_block(const AttentionCall& call, std::int64_t kv_head, std::int64_t block, int used,
                Scratch& scratch) {
  const AttentionShape& shape = call.shape;
  const T* cache = elements<T>(call.cache).data();
  const T* keys = cache + call.layout.key_block(kv_head, block);
  for (std::int64_t d = 0; d < shape.head_dim; ++d) {
    const T* from = keys + d * attention_keys;
    float* to = scratch.keys.data() + d * attention_keys;
    for (int i = 0; i < attention_keys; ++i) to[i] = element_value(from[i]);
  }
  const T* values = cache + call.layout.value(kv_head, block * attention_keys);
  const std::int64_t pitch = padded_dim(shape);
  for (int i = 0; i < used; ++i) {
    const T* from = values + i * shape.head_dim;
    float* to = scratch.values.data() + i * pitch;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) to[d] = element_value(from[d]);
    for (std::int64_t d = shape.head_dim; d < pitch; ++d) to[d] = 0.0F;
  }
}

// How many keys of the block each row may see; the rows of padding see what the last token sees.
void mark_visible(const AttentionCall& call, const Task& task, std::int64_t block,
                  Scratch& scratch) {
  const std::int64_t padded = padded_rows(call.shape, task.tokens);
  for (std::int64_t row = 0; row < padded; ++row) {
    const std::int64_t token =
        task.first_token + std::min(row / call.shape.group(), task.tokens - 1);
    const std::int64_t seen = call.start + token + 1 - block * attention_keys;
    scratch.visible[to_size(row)] =
        static_cast<std::int32_t>(std::clamp(seen, std::int64_t{0}, std::int64_t{attention_keys}));
  }
}

template <class T>
void store_output(const AttentionCall& call, const Task& task, const Scratch& scratch) {
  const AttentionShape& shape = call.shape;
  const std::int64_t rows = task.tokens * shape.group();
  const auto all = elements<T>(call.output);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto to = all.subspan(row_place(call, task, row), to_size(shape.head_dim));
    const float* from = scratch.accumulator.data() + row * padded_dim(shape);
    const float sum = scratch.sum[to_size(row)];
    for (std::size_t d = 0; d < to.size(); ++d) to[d] = round_to_element<T>(from[d] / sum);
  }
}

template <class T>
void run_task(const AttentionCall& call, const Task& task, Scratch& scratch) {
  const AttentionShape& shape = call.shape;
  load_queries<T>(call, task, scratch);
  const std::int64_t positions = call.start + task.first_token + task.tokens;
  for (std::int64_t block = 0; block * attention_keys < positions; ++block) {
    const int used = static_cast<int>(
        std::min(positions - block * attention_keys, std::int64_t{attention_keys}));
    load_block<T>(call, task.kv_head, block, used, scratch);
    mark_visible(call, task, block, scratch);
    call.tile({.queries = scratch.queries.data(),
               .keys = scratch.keys.data(),
               .values = scratch.values.data(),
               .visible = scratch.visible.data(),
               .scores = scratch.scores.data(),
               .accumulator = scratch.accumulator.data(),
               .maximum = scratch.maximum.data(),
               .sum = scratch.sum.data(),
               .rows = padded_rows(shape, task.tokens),
               .dim = shape.head_dim,
               .padded_dim = padded_dim(shape),
               .keys_used = used});
  }
  store_output<T>(call, task, scratch);
}

}  // namespace

AttentionTileFn* attention_tile_for(IsaLevel level) {
  // On AArch64 the generic vectors are NEON's.
#if defined(__x86_64__)
  if (level == IsaLevel::avx512 || level == IsaLevel::amx) return attention_tile_avx512;
  if (level == IsaLevel::avx2) return attention_tile_avx2;
#else
  static_cast<void>(level);
#endif
  return attention_tile_generic;
}

std::optional<std::uint64_t> attention_scratch_bytes(const AttentionShape& shape) {
  Carver measure;
  carve_scratch(measure, shape);
  return measure.bytes();
}

void attend(const AttentionCall& call, Executor& executor) {
  const std::int64_t tasks =
      ceil_div(call.tokens, tokens_of_a_task(call.shape)) * call.shape.kv_heads;
  const std::size_t bytes = call.scratch.size() / static_cast<std::size_t>(call.workers);
  // Later tasks see more keys, so each worker gets early and late ones.
  const auto count = static_cast<int>(std::min(std::int64_t{call.workers}, tasks));
  parallel_for(executor, count, [&](int worker) {
    Carver carver(call.scratch.subspan(static_cast<std::size_t>(worker) * bytes, bytes));
    Scratch scratch = carve_scratch(carver, call.shape);
    for (std::int64_t index = worker; index < tasks; index += call.workers) {
      const Task task = task_at(call, index);
      with_element_type(call.dtype, [&]<class T>(T) { run_task<T>(call, task, scratch); });
    }
  });
}

}  // namespace fewbit
