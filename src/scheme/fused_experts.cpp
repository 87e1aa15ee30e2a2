// SPDX-License-Identifier: Apache-2.0
#include "scheme/fused_experts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fewbit {
namespace {

// Families whose 16-bit releases hold [E, in, out].
constexpr std::string_view transposed_families[] = {"llama4", "llama4_text", "qwen3_vl_moe",
                                                    "qwen3_vl_moe_text", "qwen3_omni_moe"};

}  // namespace

std::string plain_fused_obstacle(const Inventory& inventory, const Module& module,
                                 const Shape& shape) {
  if (shape.size() != 3) {
    return fmt::format("fused experts of shape {}, expected [experts, rows, columns]",
                       shape_text(shape));
  }
  if (inventory.model_type == "gpt_oss") {
    return "gpt-oss experts with interleaved gate and up rows are not readable yet";
  }
  if (!inventory.hidden_size) return "the order of fused experts needs hidden_size of config.json";
  const bool down = module.role == Role::down_proj;
  const std::int64_t hidden = *inventory.hidden_size;
  const bool as_rows = (down ? shape[1] : shape[2]) == hidden;
  const bool as_columns = (down ? shape[2] : shape[1]) == hidden;
  const bool family_transposes =
      std::find(std::begin(transposed_families), std::end(transposed_families),
                inventory.model_type) != std::end(transposed_families);
  if (as_rows && (!as_columns || !family_transposes)) return "";
  if (!as_columns) {
    return fmt::format("fused experts of shape {} do not have hidden_size {}", shape_text(shape),
                       hidden);
  }
  return "transposed fused experts [experts, in, out] are not readable yet";
}

}  // namespace fewbit
