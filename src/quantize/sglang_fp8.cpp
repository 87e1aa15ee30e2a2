// SPDX-License-Identifier: Apache-2.0
#include "quantize/sglang_fp8.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>

namespace fewbit::sglang {
namespace {

constexpr int nan_magnitude = 0x7f;

int magnitude_of(std::byte code) { return std::to_integer<int>(code & std::byte{0x7f}); }
bool below_zero(std::byte code) { return std::to_integer<int>(code) > 0x80; }

void add(std::byte a, std::byte b, Fp8Difference& difference) {
  const int x = magnitude_of(a);
  const int y = magnitude_of(b);
  if (x == nan_magnitude || y == nan_magnitude) {
    if (x == y) return;
    ++difference.steps;
    ++difference.large;
    return;
  }
  const bool both = x != 0 && y != 0;
  if (both && below_zero(a) != below_zero(b)) ++difference.signs;
  const int steps = std::abs((below_zero(a) ? -x : x) - (below_zero(b) ? -y : y));
  if (steps >= 1) ++difference.steps;
  if (steps >= 2) ++difference.large;
}

}  // namespace

Result<Fp8Difference> fp8_difference(const TensorView& a, const TensorView& b) {
  if (a.dtype != DType::f8_e4m3 || b.dtype != DType::f8_e4m3) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} and {}, expected two tensors of f8_e4m3", dtype_name(a.dtype),
                             dtype_name(b.dtype)),
                 ""};
  }
  if (a.shape != b.shape || a.bytes.size() != b.bytes.size()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("shapes {} ({} bytes) and {} ({} bytes)", shape_text(a.shape),
                             a.bytes.size(), shape_text(b.shape), b.bytes.size()),
                 ""};
  }
  Fp8Difference difference;
  difference.codes = static_cast<std::int64_t>(a.bytes.size());
  for (std::size_t i = 0; i < a.bytes.size(); ++i) add(a.bytes[i], b.bytes[i], difference);
  return difference;
}

}  // namespace fewbit::sglang
