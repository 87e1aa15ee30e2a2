// SPDX-License-Identifier: Apache-2.0
#include "scheme/fused_experts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fewbit {
namespace {

// Families whose 16-bit releases hold [E, in, out].
constexpr std::string_view transposed_families[] = {
    "llama4", "llama4_text", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_omni_moe", "gpt_oss"};

}  // namespace

FusedOrder fused_order(const Inventory& inventory, const Module& module, const Shape& shape) {
  FusedOrder order;
  if (shape.size() != 3) {
    order.obstacle = fmt::format("fused experts of shape {}, expected [experts, rows, columns]",
                                 shape_text(shape));
    return order;
  }
  if (!inventory.hidden_size) {
    order.obstacle = "the order of fused experts needs hidden_size of config.json";
    return order;
  }
  const bool down = module.role == Role::down_proj;
  const std::int64_t hidden = *inventory.hidden_size;
  const bool as_rows = (down ? shape[1] : shape[2]) == hidden;
  const bool as_columns = (down ? shape[2] : shape[1]) == hidden;
  if (!as_rows && !as_columns) {
    order.obstacle = fmt::format("fused experts of shape {} do not have hidden_size {}",
                                 shape_text(shape), hidden);
    return order;
  }
  const bool family_transposes =
      std::find(std::begin(transposed_families), std::end(transposed_families),
                inventory.model_type) != std::end(transposed_families);
  order.transposed = as_columns && (!as_rows || family_transposes);
  order.alternating = inventory.model_type == "gpt_oss" && module.role == Role::gate_up_proj;
  return order;
}

std::string plain_fused_obstacle(const Inventory& inventory, const Module& module,
                                 const Shape& shape) {
  const FusedOrder order = fused_order(inventory, module, shape);
  if (!order.obstacle.empty()) return order.obstacle;
  if (order.transposed)
    return "transposed fused experts [experts, in, out] of codes are not readable";
  if (order.alternating) return "gate and up rows in turn of codes are not readable";
  return "";
}

}  // namespace fewbit
