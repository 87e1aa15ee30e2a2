// SPDX-License-Identifier: Apache-2.0
// Zero points of Marlin: 32-bit words along n of the grouped order of scales, int32
// [groups, n * bits / 32]; for 16-bit activations even places of a word lie in its low half, as in
// AWQ's words.
#pragma once

#include "layout/awq_words.hpp"
#include "layout/place.hpp"
#include "layout/scale_grid.hpp"

namespace fewbit {

enum class MarlinWordOrder { interleaved, plain };  // for 16-bit and for 8-bit activations

// dims.k = groups.
template <int code_bits, MarlinWordOrder order>
struct MarlinZeros {
  static constexpr int bits = code_bits;
  static constexpr std::int64_t per_word = 32 / bits;

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0 && d.n % 64 == 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.k * (d.n / per_word) * 4; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t column = grouped_column(n);
    const std::int64_t in_word = column % per_word;
    const std::int64_t slot =
        order == MarlinWordOrder::interleaved ? awq_slot(in_word, per_word) : in_word;
    return {.byte = (k * (d.n / per_word) + column / per_word) * 4 + slot * bits / 8,
            .bit = static_cast<int>(slot * bits % 8)};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t word = p.byte / 4;
    const std::int64_t words = d.n / per_word;
    const std::int64_t slot = (p.byte % 4 * 8 + p.bit) / bits;
    const std::int64_t in_word =
        order == MarlinWordOrder::interleaved ? awq_column(slot, per_word) : slot;
    return {.n = grouped_source(word % words * per_word + in_word), .k = word / words};
  }
};

}  // namespace fewbit
