// SPDX-License-Identifier: Apache-2.0
// Transposed 4-bit codes whose bytes keep their two k: bytes [k/2, stride], the byte of column n at
// k/2 * stride + n, the even k low. stride is n rounded up to `align` columns; padding is zero.
// Matrices that follow each other along n share one such matrix: the codes of part i are columns
// from the sum of the n before it.
#pragma once

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

template <std::int64_t align>
struct F4Transposed {
  static constexpr int bits = 4;

  FEWBIT_HD static constexpr std::int64_t stride(Dims d) { return round_up(d.n, align); }
  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0 && d.k % 2 == 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.k / 2 * stride(d); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return (stride(d) - d.n) * d.k / 2 * 8;
  }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return {.byte = k / 2 * stride(d) + n, .bit = static_cast<int>(k % 2) * 4};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    return {.n = p.byte % stride(d), .k = p.byte / stride(d) * 2 + p.bit / 4};
  }
};

// Its block scales: bytes [groups, stride]. dims.k = groups.
template <std::int64_t align>
struct F4TransposedScales {
  static constexpr int bits = 8;

  FEWBIT_HD static constexpr std::int64_t stride(Dims d) { return round_up(d.n, align); }
  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.k * stride(d); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) { return (stride(d) - d.n) * d.k * 8; }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return {.byte = k * stride(d) + n, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    return {.n = p.byte % stride(d), .k = p.byte / stride(d)};
  }
};

}  // namespace fewbit
