// SPDX-License-Identifier: Apache-2.0
// Codes that stand for no number. One of them spoils every product with its row.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/float_convert.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Value of a byte; empty for types that have no NaN.
using Decode = float (*)(std::uint8_t);
Decode decoder_of(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
      return f8_e4m3_to_f32;
    case DType::f8_e5m2:
      return f8_e5m2_to_f32;
    case DType::f8_e4m3fnuz:
      return f8_e4m3fnuz_to_f32;
    case DType::f8_e5m2fnuz:
      return f8_e5m2fnuz_to_f32;
    default:
      return nullptr;
  }
}

struct BadCodes {
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // element
};

BadCodes find_bad_codes(std::span<const std::byte> bytes, Decode decode) {
  std::array<bool, 256> bad{};
  for (unsigned code = 0; code < 256; ++code) {
    bad[code] = !std::isfinite(decode(static_cast<std::uint8_t>(code)));
  }
  BadCodes found;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!bad[std::to_integer<std::size_t>(bytes[i])]) continue;
    if (found.count++ == 0) found.first = i;
  }
  return found;
}

}  // namespace

void validate_code_values(Validation& validation, const Module& module) {
  const TensorInfo* weight = validation.checkpoint.find(module.part("weight"));
  const Decode decode = decoder_of(module.scheme.weight);
  if (weight == nullptr || decode == nullptr || module.k < 1 || weight->shape.empty()) return;
  const Tensor tensor = validation.checkpoint.tensor(*weight);
  const BadCodes found = find_bad_codes(tensor.view.bytes, decode);
  validation.checkpoint.release(*weight);
  if (found.count == 0) return;
  const auto k = static_cast<std::uint64_t>(std::max<std::int64_t>(weight->shape.back(), 1));
  validation.add(module, Level::error, "weight-nan", weight->name,
                 fmt::format("{} of {} codes are NaN or infinite, the first at row {}, column {}",
                             found.count, weight->bytes, found.first / k, found.first % k),
                 "finite numbers");
}

}  // namespace fewbit
