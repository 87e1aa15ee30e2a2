// SPDX-License-Identifier: Apache-2.0
// A weight matrix in the form that a kernel reads, and how many bytes that takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backends/cpu/kernel_table.hpp"
#include "fewbit/quantized.hpp"
#include "layout/place.hpp"

namespace fewbit::cpu {

// Of an e2m1 matrix, multiples of 64. Empty on overflow.
struct PackedSizes {
  std::int64_t codes = 0;
  std::int64_t scales = 0;
};
std::optional<PackedSizes> packed_sizes(Dims dims);
// Writes every byte of both.
void pack_matrix(const QuantizedTensor& tensor, std::span<std::byte> codes,
                 std::span<std::byte> scales);

inline std::int64_t blocks_of(std::int64_t features) { return (features + 15) / 16; }

// Borrows its bytes: packed ones from the layer's allocation, plain ones from the checkpoint.
class Matrix {
 public:
  // Bytes that packing needs, a multiple of 64; 0 for weights that are read in place. Empty on
  // overflow.
  static std::optional<std::uint64_t> packed_bytes(const Scheme& scheme, std::int64_t n,
                                                   std::int64_t k);
  // codes: packed ones, then with scales; or the plain values.
  struct Bytes {
    std::span<const std::byte> codes;
    std::span<const std::byte> scales;
    float global_scale = 1.0F;
  };
  // The bytes have the sizes of packed_sizes() or of the plain matrix.
  static Matrix open(const Kernels& kernels, const Scheme& scheme, Dims dims, const Bytes& bytes);

  std::int64_t blocks() const { return blocks_; }
  // Rows [16 first, 16 (first + count)) times a panel: y is the panel of those rows.
  void multiply(std::int64_t first, std::int64_t count, const float* x, int tokens, float* y) const;

 private:
  F4Lane16Fn* f4_kernel_ = nullptr;
  PlainRowsFn* plain_kernel_ = nullptr;
  F4Lane16Blocks f4_;
  PlainRows plain_;
  std::int64_t row_bytes_ = 0;  // of a plain matrix
  std::int64_t blocks_ = 0;
};

// Whether these weights are packed (else they are read in place).
inline bool is_f4(const Scheme& scheme) { return scheme.weight == DType::f4_e2m1; }

// "cpu_f4_lane16" or "row_major".
const char* layout_name(const Scheme& scheme);

}  // namespace fewbit::cpu
