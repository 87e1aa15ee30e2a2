// SPDX-License-Identifier: Apache-2.0
// From a canonical matrix to the bytes that the kernels read, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backends/cpu/weight_form.hpp"
#include "fewbit/quantized.hpp"
#include "layout/place.hpp"

namespace fewbit::cpu {

// Bytes of each part of a packed matrix, multiples of 64; zeros 0 without zero points.
struct PackedSizes {
  std::int64_t codes = 0;
  std::int64_t scales = 0;
  std::int64_t zeros = 0;
};
// Empty on overflow.
std::optional<PackedSizes> packed_sizes(const WeightForm& form, Dims dims);

struct PackedSpans {
  std::span<std::byte> codes;
  std::span<std::byte> scales;
  std::span<std::byte> zeros;
};
// Writes every byte of all parts. order: of the columns; empty when the form has none. Errors:
// invalid_argument (parts unlike the scheme, with both sides).
Result<void> pack_matrix(const WeightForm& form, const QuantizedTensor& tensor,
                         const std::vector<std::int32_t>& order, const PackedSpans& to);

struct ConstPackedSpans {
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
  std::span<const std::byte> zeros;
};
// The canonical matrix; order as it was packed.
Result<QuantizedTensor> unpack_matrix(const Scheme& scheme, Dims dims, const ConstPackedSpans& from,
                                      const std::vector<std::int32_t>& order, float global_scale);

}  // namespace fewbit::cpu
