// SPDX-License-Identifier: Apache-2.0
// What a layout is: a closed form for where every element of a matrix lives.
//
// A layout is a struct of static constexpr functions over one matrix [n, k] (one expert; experts
// follow each other at a distance of bytes()):
//
//   bits                  bits of one element; a divisor of 8 or a multiple of 8
//   accepts(dims)         whether a matrix of this size has this layout; the rest needs that
//   bytes(dims)           size of the buffer
//   spare_bits(dims)      bits of it that hold no element: padding, sums, another plane
//   place(dims, n, k)     where element (n, k) starts
//   inverse(dims, place)  the element that starts there; outside of dims for a spare place
//
// Everything else follows from it: pack.hpp packs and unpacks any layout, the typed tests prove any
// layout, fast packers must give the same bytes.
// A code whose bits lie in several places (nf3: 2 + 1) is one layout for each plane over one
// buffer.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>

#include "core/hd.hpp"
#include "fewbit/dims.hpp"

namespace fewbit {

struct Element {
  std::int64_t n = 0;
  std::int64_t k = 0;
  friend constexpr bool operator==(const Element&, const Element&) = default;
};

// Bit 0 is the lowest of the byte; elements of 16 bits and more are little-endian at bit 0.
struct Place {
  std::int64_t byte = 0;
  int bit = 0;
  friend constexpr auto operator<=>(const Place&, const Place&) = default;
};

FEWBIT_HD constexpr bool contains(Dims dims, Element e) {
  return e.n >= 0 && e.n < dims.n && e.k >= 0 && e.k < dims.k;
}

template <class L>
concept Layout = requires(Dims dims, std::int64_t i, Place place) {
  requires(L::bits > 0 && (L::bits < 8 ? 8 % L::bits == 0 : L::bits % 8 == 0 && L::bits <= 64));
  { L::accepts(dims) } -> std::same_as<bool>;
  { L::bytes(dims) } -> std::same_as<std::int64_t>;
  { L::spare_bits(dims) } -> std::same_as<std::int64_t>;
  { L::place(dims, i, i) } -> std::same_as<Place>;
  { L::inverse(dims, place) } -> std::same_as<Element>;
};

}  // namespace fewbit
