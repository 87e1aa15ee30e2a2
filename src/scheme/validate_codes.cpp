// SPDX-License-Identifier: Apache-2.0
// Codes that stand for no number. One of them spoils every product with its row.
#include <fmt/format.h>

#include <algorithm>

#include "scheme/code_scan.hpp"
#include "scheme/validation.hpp"

namespace fewbit {

void validate_code_values(Validation& validation, const Module& module) {
  const TensorInfo* weight = validation.checkpoint.find(module.part("weight"));
  const DType dtype = module.scheme.weight;
  if (!module.scheme.quantized() || weight == nullptr || weight->blocks || weight->shape.empty()) {
    return;
  }
  const bool words = module.scheme.producer == Producer::mlx && weight->dtype == DType::u32;
  if ((dtype_bits(dtype) != dtype_bits(weight->dtype) && !words) || !has_bad_elements(dtype)) {
    return;
  }
  const BadElements found =
      find_bad_elements(dtype, Bad::nan_or_infinite, validation.checkpoint, *weight);
  if (found.count == 0) return;
  const std::int64_t codes = std::max<std::int64_t>(weight->shape.back(), 1);
  const auto k = static_cast<std::uint64_t>(codes) * (words ? 4 : 1);
  validation.add(module, Level::error, "weight-nan", weight->name,
                 fmt::format("{} of {} codes are NaN or infinite, the first at row {}, column {}",
                             found.count, weight->bytes, found.first / k, found.first % k),
                 "finite numbers", double(found.count));
}

}  // namespace fewbit
