// SPDX-License-Identifier: Apache-2.0
#include "scheme/fused_experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "core/float_types.hpp"
#include "core/quote.hpp"
#include "scheme/fused_names.hpp"

namespace fewbit {
namespace {

// Families whose 16-bit releases hold [E, in, out].
constexpr std::string_view transposed_families[] = {
    "llama4", "llama4_text", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_omni_moe", "gpt_oss"};

// Families whose releases, or what Transformers makes of them, hold [E, out, in].
constexpr std::string_view straight_families[] = {"qwen3_5_moe",      "qwen3_5_moe_text",
                                                  "granitemoe",       "granitemoeshared",
                                                  "granitemoehybrid", "gemma4",
                                                  "gemma4_text",      "mixtral",
                                                  "qwen2_moe",        "qwen3_moe",
                                                  "qwen3_next",       "olmoe",
                                                  "deepseek_v2",      "deepseek_v3",
                                                  "kimi_k2",          "glm4_moe",
                                                  "glm4_moe_lite",    "glm_moe_dsa",
                                                  "minimax_m2",       "phimoe",
                                                  "ernie4_5_moe",     "jamba"};

template <std::size_t count>
bool one_of(std::string_view text, const std::string_view (&list)[count]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

bool is_float(DType dtype) {
  return is_16_or_32_bit_float(dtype) || dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2;
}

// Which orders of [E, a, b] have the model's width where it belongs.
struct Orders {
  bool rows = false;
  bool columns = false;
};
Orders fitting_orders(const Shape& shape, Role role, std::int64_t hidden) {
  const bool down = role == Role::down_proj;
  return {(down ? shape[1] : shape[2]) == hidden, (down ? shape[2] : shape[1]) == hidden};
}

// The order of another matrix of the same experts that has one only.
std::optional<bool> order_of_others(const Inventory& inventory, const Module& module) {
  for (const std::string_view last :
       {"gate_up_proj", "gate_proj", "up_proj", "down_proj", "input_linear", "output_linear"}) {
    const std::string name = with_last_component(module.name, last);
    const Draft* other = inventory.find(name);
    if (other == nullptr) continue;
    const TensorInfo* weight = other->tensor("weight");
    // Packed codes have other shapes than their matrix.
    if (weight == nullptr || weight->shape.size() != 3 || !is_float(weight->dtype)) continue;
    const Orders fits = fitting_orders(weight->shape, other->module.role, *inventory.hidden_size);
    if (fits.rows != fits.columns) return fits.columns;
  }
  return std::nullopt;
}

// Whether a square matrix is [E, in, out]; empty when nothing tells.
std::optional<bool> square_order(const Inventory& inventory, const Module& module) {
  if (const auto order = order_of_others(inventory, module)) return order;
  if (stores_inputs_first(inventory.model_type)) return true;
  if (one_of(inventory.model_type, straight_families)) return false;
  return std::nullopt;
}

bool is_gguf_name(std::string_view module) {
  return module.starts_with("blk.") && module.ends_with("_exps");
}

}  // namespace

bool stores_inputs_first(std::string_view model_type) {
  return one_of(model_type, transposed_families);
}

FusedOrder fused_order(const Inventory& inventory, const Module& module, const Shape& shape) {
  FusedOrder order;
  if (shape.size() != 3) {
    order.obstacle = fmt::format("fused experts of shape {}, expected [experts, rows, columns]",
                                 shape_text(shape));
    return order;
  }
  // GGUF's own names, of a decoded file: its matrices have one order.
  if (is_gguf_name(module.name)) return order;
  if (!inventory.hidden_size) {
    order.obstacle = "the order of fused experts needs hidden_size of config.json";
    return order;
  }
  const std::int64_t hidden = *inventory.hidden_size;
  const Orders fits = fitting_orders(shape, module.role, hidden);
  if (!fits.rows && !fits.columns) {
    order.obstacle = fmt::format("fused experts of shape {} do not have hidden_size {}",
                                 shape_text(shape), hidden);
    return order;
  }
  const auto transposed =
      fits.rows && fits.columns ? square_order(inventory, module) : std::optional(fits.columns);
  if (!transposed) {
    order.obstacle = fmt::format(
        "fused experts of shape {} with hidden_size {} may be [experts, out, in] or [experts, in, "
        "out]: no other matrix of them tells, and neither does model_type {}",
        shape_text(shape), hidden, quote(inventory.model_type));
    return order;
  }
  order.transposed = *transposed;
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
