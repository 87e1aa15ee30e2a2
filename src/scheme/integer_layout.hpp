// SPDX-License-Identifier: Apache-2.0
// The shapes of integer-quantized tensors in the layouts of GPTQ and AWQ, and which layouts the
// shapes of a module allow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheme/reader.hpp"

namespace fewbit {

// Whether a packing is one of GPTQ's or AWQ's.
constexpr bool is_integer_words(Packing packing) {
  return packing == Packing::words_k || packing == Packing::words_k_minus ||
         packing == Packing::words_n || packing == Packing::words_gemv ||
         packing == Packing::shorts_gemv;
}

// A matrix [n, k] of `bits`-bit codes with one scale a group of group_size columns; group_size 0 =
// one group for the whole row.
struct IntegerFit {
  Packing packing = Packing::words_k;  // words_k also stands for words_k_minus
  int bits = 4;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t group_size = 0;
};

// What the parts of a module must look like.
struct IntegerShapes {
  Shape qweight;
  Shape scales;
  Shape qzeros;
  Shape g_idx;
  DType qweight_dtype = DType::i32;
  DType qzeros_dtype = DType::i32;  // f16: zeros already multiplied by their scale
};
// Empty when a size overflows.
std::optional<IntegerShapes> integer_shapes(const IntegerFit& fit);
// Of a module that was claimed as integer-quantized.
IntegerFit integer_fit_of(const Scheme& scheme, std::int64_t n, std::int64_t k);

// What is known beside the shapes.
struct IntegerHints {
  std::optional<std::int64_t> bits;
  std::optional<std::int64_t> group_size;  // 0 = whole rows
};
// Every layout that all present parts allow. A layout stands there twice when the shapes leave its
// bits or group size open. A g_idx of another length than any of them is no obstacle: it is wrong.
std::vector<IntegerFit> integer_fits(const Draft& draft, const IntegerHints& hints);
// The sizes that a layout gives when not all parts fit it, from qweight and the hints.
IntegerFit nearest_integer_fit(const Draft& draft, Packing packing, const IntegerHints& hints);

// "GPTQ 4 bit [64, 128], groups of 32"
std::string integer_fit_text(const IntegerFit& fit);

}  // namespace fewbit
