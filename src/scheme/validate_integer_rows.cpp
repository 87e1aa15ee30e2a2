// SPDX-License-Identifier: Apache-2.0
// Values beside integer codes that compressed-tensors stores: group numbers, zero points, the shape
// before packing.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/checked.hpp"
#include "scheme/group_index.hpp"
#include "scheme/packed_rows.hpp"
#include "scheme/passing_tensor.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// The part behind a dot or behind an underscore: "weight_g_idx", "g_idx".
const TensorInfo* find_part(const Validation& validation, const Module& module,
                            std::string_view suffix) {
  constexpr std::size_t prefix = std::string_view("weight_").size();
  const std::string_view name = module.part(suffix);
  return validation.checkpoint.find(name.empty() ? module.part(suffix.substr(prefix)) : name);
}

}  // namespace

void validate_weight_shape(Validation& validation, const Module& module) {
  if (validation.depth == Depth::headers) return;
  const TensorInfo* shape = find_part(validation, module, "weight_shape");
  const auto stored = stored_weight_shape(validation.checkpoint, module);
  if (shape == nullptr || (stored && stored->n == module.n && stored->k == module.k)) return;
  validation.add(module, Level::warning, "weight-shape-differs", shape->name,
                 stored ? fmt::format("[{}, {}]", stored->n, stored->k)
                        : fmt::format("{} {}", dtype_name(shape->dtype), shape_text(shape->shape)),
                 fmt::format("[{}, {}], as the codes and scales say", module.n, module.k));
}

namespace {

// Kernels with act-order read full groups.
void validate_group_sizes(Validation& validation, const Module& module, const TensorInfo& info,
                          const TensorView& groups) {
  const std::int64_t cols = module.scheme.scale->granularity.cols;
  const GroupIndex index = read_group_index(groups, cols);
  if (index.uneven_group < 0) return;
  validation.add(
      module, Level::error, "group-index-uneven", info.name,
      fmt::format("group {} has {} columns", index.uneven_group, index.uneven_count),
      fmt::format("{}: {} columns in groups of {}", index.uneven_expected, module.k, cols));
}

void validate_group_index(Validation& validation, const Module& module) {
  const TensorInfo* info = find_part(validation, module, "weight_g_idx");
  if (info == nullptr || info->dtype != DType::i32) return;
  const std::int64_t cols = module.scheme.scale->granularity.cols;
  const std::int64_t groups = cols == 0 ? 1 : ceil_div(module.k, cols);
  const PassingTensor tensor(validation.checkpoint, *info);
  std::int64_t wrong = 0;
  std::int64_t unset = 0;
  std::int32_t example = 0;
  const std::size_t count = tensor.bytes().size() / sizeof(std::int32_t);
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t group = 0;
    std::memcpy(&group, tensor.bytes().data() + i * sizeof group, sizeof group);
    unset += group == -1 ? 1 : 0;
    if (group >= 0 && group < groups) continue;
    if (wrong++ == 0) example = group;
  }
  // Some files hold -1 everywhere where there is no order.
  if (unset == static_cast<std::int64_t>(count)) return;
  if (wrong == 0) return validate_group_sizes(validation, module, *info, tensor.view());
  validation.add(module, Level::error, "g-idx-range", info->name,
                 fmt::format("{} of {} groups, the first {}", wrong, count, example),
                 fmt::format("0 to {}", groups - 1), double(wrong));
}

void validate_zero_points(Validation& validation, const Module& module) {
  const TensorInfo* info = find_part(validation, module, "weight_zero_point");
  if (info == nullptr || info->dtype != DType::i8 || dtype_bits(module.scheme.weight) == 8) return;
  const std::int32_t half = module.scheme.zero_point;
  const PassingTensor tensor(validation.checkpoint, *info);
  const auto bytes = tensor.bytes();
  const auto outside = [&](std::byte byte) {
    const std::int32_t zero = std::int32_t{static_cast<std::int8_t>(byte)};
    return zero < -half || zero >= half;
  };
  const auto wrong = std::count_if(bytes.begin(), bytes.end(), outside);
  if (wrong == 0) return;
  const auto first = std::find_if(bytes.begin(), bytes.end(), outside);
  validation.add(module, Level::error, "zero-point-range", info->name,
                 fmt::format("{} of {} zero points, the first {}", wrong, bytes.size(),
                             static_cast<int>(static_cast<std::int8_t>(*first))),
                 fmt::format("{} to {}", -half, half - 1), double(wrong));
}

}  // namespace

void validate_integer_rows(Validation& validation, const Module& module) {
  if (validation.depth == Depth::headers) return;
  validate_group_index(validation, module);
  validate_zero_points(validation, module);
}

}  // namespace fewbit
