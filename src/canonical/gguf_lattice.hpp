// SPDX-License-Identifier: Apache-2.0
// The sets of vectors that the codes of GGUF's IQ1, IQ2 and IQ3 types point into.
#pragma once

#include <cstdint>

namespace fewbit {

// A vector is one word of digits, element i in the digit i; a digit points into `values`.
struct GgufLattice {
  const std::uint16_t* words;
  const std::int8_t* values;
  int digit_bits;

  float at(std::uint32_t vector, int element) const {
    const unsigned digit = words[vector] >> digit_bits * element & ((1U << digit_bits) - 1U);
    return static_cast<float>(values[digit]);
  }
};

// Vectors of 8 elements: 256, 512, 1024 and 2048 of them.
extern const GgufLattice iq2_xxs_lattice, iq2_xs_lattice, iq2_s_lattice, iq1_lattice;
// Vectors of 4 elements: 256 and 512.
extern const GgufLattice iq3_xxs_lattice, iq3_s_lattice;

}  // namespace fewbit
