// SPDX-License-Identifier: Apache-2.0
#include "scheme/qkv_rows.hpp"

#include "core/checked.hpp"
#include "scheme/config_section.hpp"
#include "scheme/model_json.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

// 0: absent or no size.
std::int64_t size_of(const ConfigSection& config, ConfigSection::Keys keys) {
  const auto value = config.integer(keys, 1, std::int64_t{1} << 24);
  return value ? value->value_or(0) : 0;
}

}  // namespace

bool is_fused_qkv(const Module& module) {
  const std::string_view last = split_dots(module.name).back();
  return last == "qkv_proj" || last == "qkv" || last == "query_key_value" || last == "Wqkv";
}

std::optional<std::array<std::int64_t, 3>> qkv_rows(const Checkpoint& checkpoint, std::int64_t n) {
  const auto file = read_model_json(checkpoint);
  if (!file || file->root == nullptr) return std::nullopt;
  const ConfigSection config(*file->root, file->name);
  const std::int64_t heads = size_of(config, {"num_attention_heads"});
  std::int64_t kv_heads = size_of(config, {"num_key_value_heads"});
  std::int64_t width = size_of(config, {"head_dim"});
  if (heads == 0) return std::nullopt;
  if (kv_heads == 0) kv_heads = heads;
  if (width == 0) width = size_of(config, {"hidden_size"}) / heads;
  // All are at most 2^24, so nothing overflows.
  const std::int64_t q = heads * width;
  const std::int64_t kv = kv_heads * width;
  if (kv == 0 || q + 2 * kv != n) return std::nullopt;
  return std::array<std::int64_t, 3>{q, kv, kv};
}

}  // namespace fewbit
