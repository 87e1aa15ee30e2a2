// SPDX-License-Identifier: Apache-2.0
// Plain weights: types that are read, and numbers that are some.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "scheme/name_parts.hpp"
#include "scheme/plain_values.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

struct BadValues {
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // element
};

// All exponent bits set: infinity, or NaN where the mantissa is not zero.
template <typename Bits>
BadValues find_bad(std::span<const std::byte> bytes, Bits exponent, Bits mantissa, bool nan_only) {
  BadValues bad;
  for (std::size_t i = 0; i < bytes.size() / sizeof(Bits); ++i) {
    Bits bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    if ((bits & exponent) != exponent || (nan_only && (bits & mantissa) == 0)) continue;
    if (bad.count++ == 0) bad.first = i;
  }
  return bad;
}

BadValues find_bad(DType dtype, std::span<const std::byte> bytes, bool nan_only) {
  switch (dtype) {
    case DType::f16:
      return find_bad<std::uint16_t>(bytes, 0x7c00, 0x03ff, nan_only);
    case DType::bf16:
      return find_bad<std::uint16_t>(bytes, 0x7f80, 0x007f, nan_only);
    case DType::f32:
      return find_bad<std::uint32_t>(bytes, 0x7f800000U, 0x007fffffU, nan_only);
    default:
      return {};
  }
}

bool is_part_of_a_model(Role role) { return role != Role::other && role != Role::attention_other; }

// A mask is minus infinity where it hides something; so may be a lone number of attention.
bool may_be_infinite(const Module& module) {
  return module.k == 0 && !is_part_of_a_model(module.role);
}
bool is_mask(const Module& module) {
  return split_dots(module.name).back().find("mask") != std::string_view::npos;
}

bool is_read(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

}  // namespace

std::optional<Finding> plain_value_fault(const Checkpoint& checkpoint, const Module& module) {
  // A bias without a weight is a mask too.
  const bool weight = std::any_of(module.parts.begin(), module.parts.end(),
                                  [](const auto& part) { return is_weight_suffix(part.suffix); });
  if (is_mask(module) || !weight) return std::nullopt;
  for (const std::string_view suffix : {"weight", "bias"}) {
    const TensorInfo* info = checkpoint.find(module.part(suffix));
    if (info == nullptr || (suffix == "weight" && module.scheme.quantized())) continue;
    const Tensor tensor = checkpoint.tensor(*info);
    const BadValues bad = find_bad(info->dtype, tensor.view.bytes, may_be_infinite(module));
    checkpoint.release(*info);
    if (bad.count == 0) continue;
    const std::int64_t width = info->shape.empty() ? 1 : info->shape.back();
    const auto columns = static_cast<std::uint64_t>(std::max<std::int64_t>(width, 1));
    return Finding{
        Level::error, "weight-nan", info->name,
        fmt::format(
            "{} of {} values are NaN or infinite, the first at row {}, column {}", bad.count,
            tensor.view.bytes.size() * 8 / static_cast<std::size_t>(dtype_bits(info->dtype)),
            bad.first / columns, bad.first % columns),
        "finite numbers"};
  }
  return std::nullopt;
}

void validate_plain(Validation& validation, const Module& module) {
  if (validation.depth == Depth::weights) {
    if (auto fault = plain_value_fault(validation.checkpoint, module)) {
      validation.groups.add(module.role, *std::move(fault));
    }
  }
  if (module.scheme.quantized() || module.part("weight").empty() || is_mask(module)) return;
  const DType dtype = module.scheme.weight;
  // Beside the weights of the model stand tables of integers; nobody's are in 64 bits of a float.
  const bool wrong = is_part_of_a_model(module.role) && module.role != Role::router_bias
                         ? !is_read(dtype)
                         : dtype == DType::f64 && module.k > 0;
  if (!wrong) return;
  validation.add(module, Level::error, "tensor-dtype", std::string(module.part("weight")),
                 std::string(dtype_name(dtype)), "bf16, f16 or f32");
}

}  // namespace fewbit
