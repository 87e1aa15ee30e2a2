// SPDX-License-Identifier: Apache-2.0
// Where keys and values of one layer lie.
#pragma once

#include <cstdint>

#include "core/checked.hpp"
#include "kernels/cpu/attention_tile.hpp"

namespace fewbit {

// Keys [kv_heads][blocks][head_dim][64 positions], then values [kv_heads][positions][head_dim]: the
// order in which attention reads them.
struct KvLayout {
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t capacity = 0;  // positions

  std::int64_t blocks() const { return ceil_div(capacity, std::int64_t{attention_keys}); }
  std::int64_t positions() const { return blocks() * attention_keys; }
  std::int64_t key_block(std::int64_t head, std::int64_t block) const {
    return (head * blocks() + block) * head_dim * attention_keys;
  }
  // Element d of a key is attention_keys * d further on.
  std::int64_t key(std::int64_t head, std::int64_t position) const {
    return key_block(head, position / attention_keys) + position % attention_keys;
  }
  std::int64_t value(std::int64_t head, std::int64_t position) const {
    return (kv_heads + head) * positions() * head_dim + position * head_dim;
  }
  std::int64_t elements() const { return 2 * kv_heads * positions() * head_dim; }
};

}  // namespace fewbit
