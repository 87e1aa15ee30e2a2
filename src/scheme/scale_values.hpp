// SPDX-License-Identifier: Apache-2.0
// What the values of a scale tensor are, counted in one pass.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "fewbit/tensor.hpp"

namespace fewbit {

struct ScaleCounts {
  std::uint64_t values = 0;
  std::uint64_t not_finite = 0;  // NaN or infinite
  std::uint64_t negative = 0;    // below zero
  std::uint64_t zero = 0;
  std::uint64_t whole = 0;  // whole numbers from 1 to 254: how exponents would look as numbers
  float smallest = 0;       // of the finite values
  float largest = 0;

  bool has_number() const { return values > not_finite; }
};

// `dtype`: what the bytes mean, which may not be what the file says (e8m0 exponents in u8).
// Empty for types that hold no scales.
std::optional<ScaleCounts> count_scale_values(DType dtype, std::span<const std::byte> bytes);

}  // namespace fewbit
