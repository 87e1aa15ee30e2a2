// SPDX-License-Identifier: Apache-2.0
// A weight matrix in the form that a kernel reads, and how many bytes that takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backends/cpu/kernel_table.hpp"
#include "backends/cpu/pack_matrix.hpp"
#include "fewbit/quantized.hpp"
#include "layout/place.hpp"

namespace fewbit::cpu {

inline std::int64_t blocks_of(std::int64_t features) { return (features + 15) / 16; }

// Borrows its bytes: packed ones from the layer's allocation, plain ones from the checkpoint.
class Matrix {
 public:
  // Bytes that packing needs, a multiple of 64; 0 for weights that are read in place. Empty on
  // overflow.
  static std::optional<std::uint64_t> packed_bytes(const Scheme& scheme, std::int64_t n,
                                                   std::int64_t k);
  // The bytes have the sizes of packed_sizes(); or codes are the plain matrix's values.
  static Matrix open(const Kernels& kernels, const Scheme& scheme, Dims dims,
                     const ConstPackedSpans& bytes, float global_scale);

  std::int64_t blocks() const { return blocks_; }
  // Most tokens of a panel.
  int most_tokens() const { return most_tokens_; }
  // Rows [16 first, 16 (first + count)) times a panel: y is the panel of those rows.
  void multiply(std::int64_t first, std::int64_t count, const float* x, int tokens, float* y) const;

  // The kernel for tiles and the blocks from `first` on, of a packed matrix.
  Lane16TilesFn* tiles() const { return tiles_; }
  Lane16Blocks packed_from(std::int64_t first) const;

 private:
  Lane16TilesFn* tiles_ = nullptr;
  Lane16Fn* packed_kernel_ = nullptr;
  PlainRowsFn* plain_kernel_ = nullptr;
  Lane16Blocks packed_;
  PlainRows plain_;
  // Of 16 rows of a packed matrix.
  std::int64_t code_bytes_ = 0;
  std::int64_t scale_bytes_ = 0;
  std::int64_t zero_bytes_ = 0;
  std::int64_t row_bytes_ = 0;  // of a plain matrix
  std::int64_t blocks_ = 0;
  int most_tokens_ = max_panel_tokens;
};

}  // namespace fewbit::cpu
