// SPDX-License-Identifier: Apache-2.0
// MoE weights with NF3 codes -> what the W4A16 kernels of b12x read (`prepare_nf3_moe_weights`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/element_mover.hpp"
#include "layout/nf3_scale.hpp"
#include "layout/place.hpp"
#include "layout/row_order.hpp"

namespace fewbit {

struct Nf3Matrix {
  TensorView codes;         // u8, i8, i32 or i64 [experts, n, k], each 0 to 7, rows in kernel order
  TensorView scales;        // f32 [experts, n, k/32]
  std::int64_t tile_n = 0;  // columns of a thread block: a multiple of 64 that divides n
};

struct Nf3Input {
  std::int64_t hidden_size = 0;        // a multiple of 64
  std::int64_t intermediate_size = 0;  // a multiple of 32
  Gating gating = Gating::gated;
  DType activation_dtype = DType::bf16;  // no other
  Nf3ScaleRounding rounding = Nf3ScaleRounding::nearest;
  Nf3Matrix w13;
  Nf3Matrix w2;
};

struct Nf3MatrixResult {
  Tensor words;                      // i32 [experts, 3 * n * k / 32]  Nf3Packed
  Tensor scales;                     // u8 [experts, k/32, n]  ByteScaleGrid
  Tensor global_scales;              // f32 [experts], each nf3_global_scale
  std::int64_t tile_n = 0;           // that the words are packed for; no other may read them
  std::int64_t raised_scales = 0;    // not 0 and below the smallest
  std::int64_t negative_scales = 0;  // of these
};
struct Nf3Result {
  Nf3MatrixResult w13;
  Nf3MatrixResult w2;
};

// Errors: invalid_argument (where: the tensor): dtype, shape, sizes that tiles or groups do not
// divide, the first code outside 0 to 7, the first scale that is not below 32 (NaN too); limit
// (memory can't be had).
Result<Nf3Result> prepare_nf3(const Nf3Input& input, Executor& executor = serial_executor());

// The codes [n, k] of one expert, one a byte. Errors: invalid_argument (expert or number of codes).
Result<void> unpack_nf3(const Nf3MatrixResult& matrix, std::int64_t expert,
                        std::span<std::uint8_t> codes);

// One thread's memory for 64 rows: their planes by rows, then by units.
struct Nf3Planes {
  explicit Nf3Planes(std::int64_t k);
  std::vector<std::byte> low;
  std::vector<std::byte> high;
  std::vector<std::byte> low_units;
  std::vector<std::byte> high_units;
};

// Packs rows of a matrix [n, k] with one code, 0 to 7, a byte into Nf3Packed. The plan of its moves
// is made once. Precondition: Nf3Packed::accepts(dims, tile_n).
class Nf3Packer {
 public:
  Nf3Packer(Dims dims, std::int64_t tile_n);
  // codes: of the rows first to end, multiples of 64; words: of the whole matrix, those of these
  // rows are written.
  void pack_rows(std::int64_t first, std::int64_t end, const std::uint8_t* codes, std::byte* words,
                 Nf3Planes& planes) const;

 private:
  Dims dims_;
  std::int64_t tile_n_;
  ElementMover low_;
  ElementMover high_;
};

// codes [n, k], one a byte, each 0 to 7 -> Nf3Packed::bytes(dims) bytes, all written.
// Precondition: Nf3Packed::accepts(dims, tile_n).
void pack_nf3(Dims dims, std::int64_t tile_n, std::span<const std::uint8_t> codes,
              std::span<std::byte> words);
// The inverse.
void unpack_nf3(Dims dims, std::int64_t tile_n, std::span<const std::byte> words,
                std::span<std::uint8_t> codes);

}  // namespace fewbit
