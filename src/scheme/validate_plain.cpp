// SPDX-License-Identifier: Apache-2.0
// Plain weights: types that are read, and numbers that are some.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/float_types.hpp"
#include "scheme/code_scan.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/plain_values.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

bool is_part_of_a_model(Role role) { return role != Role::other && role != Role::attention_other; }

// A mask is minus infinity where it hides something; so may be a lone number of attention.
bool may_be_infinite(const Module& module) {
  return module.k == 0 && !is_part_of_a_model(module.role);
}
bool is_mask(const Module& module) {
  return split_dots(module.name).back().find("mask") != std::string_view::npos;
}

}  // namespace

std::optional<PlainValueFault> plain_value_fault(const Checkpoint& checkpoint,
                                                 const Module& module) {
  // A bias without a weight is a mask too.
  if (is_mask(module) || !has_weight(module)) return std::nullopt;
  for (const std::string_view suffix : {"weight", "bias"}) {
    const TensorInfo* info = checkpoint.find(module.part(suffix));
    if (info == nullptr || (suffix == "weight" && module.scheme.quantized())) continue;
    if (info->blocks || !has_bad_elements(info->dtype)) continue;
    const Bad kind = may_be_infinite(module) ? Bad::nan : Bad::nan_or_infinite;
    const BadElements bad = find_bad_elements(info->dtype, kind, checkpoint, *info);
    if (bad.count == 0) continue;
    const std::int64_t width = info->shape.empty() ? 1 : info->shape.back();
    const auto columns = static_cast<std::uint64_t>(std::max<std::int64_t>(width, 1));
    Finding finding{
        Level::error, "weight-nan", info->name,
        fmt::format("{} of {} values are NaN or infinite, the first at row {}, column {}",
                    bad.count,
                    info->bytes * 8 / static_cast<std::uint64_t>(dtype_bits(info->dtype)),
                    bad.first / columns, bad.first % columns),
        "finite numbers"};
    return PlainValueFault{std::move(finding), bad.count};
  }
  return std::nullopt;
}

void validate_plain(Validation& validation, const Module& module) {
  if (validation.depth == Depth::weights) {
    if (auto fault = plain_value_fault(validation.checkpoint, module)) {
      validation.groups.add(module.role, std::move(fault->finding), double(fault->count));
    }
  }
  if (module.scheme.quantized() || module.part("weight").empty() || is_mask(module)) return;
  const DType dtype = module.scheme.weight;
  // Beside the weights of the model stand tables of integers; nobody's are in 64 bits of a float.
  const bool wrong =
      is_part_of_a_model(module.role) && module.role != Role::router_bias
          ? !is_16_or_32_bit_float(dtype)
          : dtype == DType::f64 && (module.k > 0 || module.role == Role::router_bias);
  if (!wrong) return;
  validation.add(module, Level::error, "tensor-dtype", std::string(module.part("weight")),
                 std::string(dtype_name(dtype)), "bf16, f16 or f32");
}

}  // namespace fewbit
