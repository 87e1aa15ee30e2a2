// SPDX-License-Identifier: Apache-2.0
// Packing and unpacking any layout, element by element from its closed form: the reference that
// fast packers are held to.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "layout/place.hpp"

namespace fewbit {

// Writes the low `bits` bits of value at place. Other bits of the byte stay.
template <int bits>
void write_bits(std::span<std::byte> buffer, Place place, std::uint64_t value) {
  const auto at = static_cast<std::size_t>(place.byte);
  if constexpr (bits < 8) {
    const auto mask = static_cast<unsigned>((1U << bits) - 1U) << place.bit;
    const auto kept = std::to_integer<unsigned>(buffer[at]) & ~mask;
    buffer[at] =
        static_cast<std::byte>(kept | ((static_cast<unsigned>(value) << place.bit) & mask));
  } else {
    for (std::size_t i = 0; i < bits / 8; ++i) {
      buffer[at + i] = static_cast<std::byte>(value >> (8 * i));
    }
  }
}

template <int bits>
std::uint64_t read_bits(std::span<const std::byte> buffer, Place place) {
  const auto at = static_cast<std::size_t>(place.byte);
  if constexpr (bits < 8) {
    return (std::to_integer<unsigned>(buffer[at]) >> place.bit) & ((1U << bits) - 1U);
  } else {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bits / 8; ++i) {
      value |= std::uint64_t{std::to_integer<std::uint8_t>(buffer[at + i])} << (8 * i);
    }
    return value;
  }
}

// Puts code(n, k) of every element into its place. Spare bits keep their value: clear the buffer
// first where they must be zero.
// Preconditions: L::accepts(dims), out holds L::bytes(dims) bytes.
template <Layout L, class Code>
void pack(Dims dims, const Code& code, std::span<std::byte> out) {
  assert(L::accepts(dims) && std::ssize(out) >= L::bytes(dims));
  for (std::int64_t n = 0; n < dims.n; ++n) {
    for (std::int64_t k = 0; k < dims.k; ++k) {
      write_bits<L::bits>(out, L::place(dims, n, k), static_cast<std::uint64_t>(code(n, k)));
    }
  }
}

// Calls store(n, k, code) for every element, by rows.
template <Layout L, class Store>
void unpack(Dims dims, std::span<const std::byte> in, const Store& store) {
  assert(L::accepts(dims) && std::ssize(in) >= L::bytes(dims));
  for (std::int64_t n = 0; n < dims.n; ++n) {
    for (std::int64_t k = 0; k < dims.k; ++k) {
      store(n, k, read_bits<L::bits>(in, L::place(dims, n, k)));
    }
  }
}

}  // namespace fewbit
