// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_trtllm.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "layout/check_tensor.hpp"
#include "layout/pack.hpp"
#include "layout/row_major.hpp"
#include "layout/swizzle_128x4.hpp"
#include "layout/trtllm_blocks.hpp"
#include "layout/trtllm_rows.hpp"

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

// One matrix: stored row stored.source(n) is the n-th one that the kernels mean.
struct Part {
  std::string name;
  const TrtllmMatrix& matrix;
  Dims dims;
  std::int64_t experts;
  TrtllmRows rows;
  RowRotation stored;
};

Result<void> check_multiples(const Part& part, std::int64_t n, std::int64_t k) {
  if (part.dims.n % n == 0 && part.dims.k % k == 0) return {};
  return bad(part.name + " codes", "n x k is " + std::to_string(part.dims.n) + " x " +
                                       std::to_string(part.dims.k) + ", expected multiples of " +
                                       std::to_string(n) + " and " + std::to_string(k));
}

std::size_t as_size(std::int64_t count) { return static_cast<std::size_t>(count); }

// Rows of scales [n, groups] into the swizzle.
template <int bits>
void swizzle_rows(const Part& part, std::int64_t groups, std::span<const std::byte> scales,
                  std::span<std::byte> out) {
  using Plain = RowMajor<bits>;
  using Swizzle = Swizzle128x4<bits>;
  const Dims grid{.n = part.dims.n, .k = groups};
  for (std::int64_t n = 0; n < grid.n; ++n) {
    const std::int64_t from = part.stored.source(n);
    for (std::int64_t k = 0; k < groups; ++k) {
      write_bits<bits>(out, Swizzle::place(grid, part.rows.place(n), k),
                       read_bits<bits>(scales, Plain::place(grid, from, k)));
    }
  }
}

template <int bits>
void swizzle_experts(const Part& part, std::int64_t groups, std::span<std::byte> out) {
  const Dims grid{.n = part.dims.n, .k = groups};
  const std::size_t stored = as_size(RowMajor<bits>::bytes(grid));
  const std::size_t swizzled = as_size(Swizzle128x4<bits>::bytes(grid));
  for (std::size_t e = 0; e < as_size(part.experts); ++e) {
    swizzle_rows<bits>(part, groups, part.matrix.scales.bytes.subspan(e * stored, stored),
                       out.subspan(e * swizzled, swizzled));
  }
}

Result<TrtllmMatrixResult> prepare_fp4(const Part& part) {
  const std::int64_t groups = part.dims.k / 16;
  const Shape shape = {part.experts, part.dims.n, part.dims.k / 2};
  FEWBIT_TRY(check_multiples(part, 128, 16));
  FEWBIT_TRY(check_tensor(part.name + " codes", part.matrix.codes, DType::u8, shape));
  FEWBIT_TRY(check_scale_bytes(part.name + " scales", part.matrix.scales, DType::f8_e4m3,
                               {part.experts, part.dims.n, groups}));
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(DType::u8, shape));
  const Dims padded = Swizzle128x4<8>::padded({.n = part.dims.n, .k = groups});
  FEWBIT_TRY(OwnedTensor scales,
             allocate_tensor(DType::f8_e4m3, {part.experts, padded.n, padded.k}));
  const std::size_t row_bytes = as_size(part.dims.k / 2);
  for (std::int64_t e = 0; e < part.experts; ++e) {
    for (std::int64_t n = 0; n < part.dims.n; ++n) {
      const std::int64_t first = e * part.dims.n;
      std::memcpy(
          codes.bytes.data() + as_size(first + part.rows.place(n)) * row_bytes,
          part.matrix.codes.bytes.data() + as_size(first + part.stored.source(n)) * row_bytes,
          row_bytes);
    }
  }
  swizzle_experts<8>(part, groups, scales.bytes);
  return TrtllmMatrixResult{.codes = codes.tensor, .scales = scales.tensor};
}

template <Gating gating>
void pack_mxint4(const Part& part, std::span<std::byte> out) {
  const std::size_t bytes = as_size(part.dims.n * part.dims.k / 2);
  for (std::size_t e = 0; e < as_size(part.experts); ++e) {
    const auto words = part.matrix.codes.bytes.subspan(e * bytes, bytes);
    pack<TrtllmBlocks<gating>>(
        part.dims,
        [&](std::int64_t n, std::int64_t k) {
          // Exchanging the halves of the 16 codes is code - 8 in two's complement.
          return read_bits<4>(words, RowMajor<4>::place(part.dims, part.stored.source(n), k)) ^ 8U;
        },
        out.subspan(e * bytes, bytes));
  }
}

Result<TrtllmMatrixResult> prepare_mxint4(const Part& part) {
  const std::int64_t groups = part.dims.k / 32;
  FEWBIT_TRY(check_multiples(part, 128, 256));
  FEWBIT_TRY(check_tensor(part.name + " codes", part.matrix.codes, DType::i32,
                          {part.experts, part.dims.n, part.dims.k / 8}));
  FEWBIT_TRY(check_tensor(part.name + " scales", part.matrix.scales, DType::bf16,
                          {part.experts, part.dims.n, groups}));
  FEWBIT_TRY(OwnedTensor codes,
             allocate_tensor(DType::u8, {part.experts, part.dims.k / 256, part.dims.n, 128}));
  FEWBIT_TRY(OwnedTensor scales,
             allocate_tensor(DType::bf16, {part.experts, part.dims.n * groups}));
  part.rows.gating == Gating::gated ? pack_mxint4<Gating::gated>(part, codes.bytes)
                                    : pack_mxint4<Gating::ungated>(part, codes.bytes);
  swizzle_experts<16>(part, groups, scales.bytes);
  return TrtllmMatrixResult{.codes = codes.tensor, .scales = scales.tensor};
}

Result<std::int64_t> experts_of(const TrtllmMatrix& gemm1) {
  const Shape& shape = gemm1.codes.shape;
  if (shape.size() == 3 && shape[0] > 0) return shape[0];
  return bad("gemm1 codes",
             "shape " + shape_text(shape) + ", expected three extents, experts first");
}

}  // namespace

Result<TrtllmResult> prepare_trtllm_fp4(const TrtllmFp4Input& input) {
  FEWBIT_TRY(check_extent("hidden_size", input.hidden_size));
  FEWBIT_TRY(check_extent("intermediate_size", input.intermediate_size));
  FEWBIT_TRY(check_extent("epilogue_tile_m", input.epilogue_tile_m));
  FEWBIT_TRY(const std::int64_t experts, experts_of(input.gemm1));
  const TrtllmBlock block = trtllm_block(input.epilogue_tile_m);
  const std::int64_t rows = (input.gating == Gating::gated ? 2 : 1) * input.intermediate_size;
  const Part gemm1{.name = "gemm1",
                   .matrix = input.gemm1,
                   .dims = {.n = rows, .k = input.hidden_size},
                   .experts = experts,
                   .rows = {.rows = rows, .gating = input.gating, .block = block},
                   .stored = {.rows = rows, .shift = 0}};
  const Part gemm2{.name = "gemm2",
                   .matrix = input.gemm2,
                   .dims = {.n = input.hidden_size, .k = input.intermediate_size},
                   .experts = experts,
                   .rows = {.rows = input.hidden_size, .gating = Gating::ungated, .block = block},
                   .stored = {.rows = input.hidden_size, .shift = 0}};
  TrtllmResult result;
  FEWBIT_TRY(result.gemm1, prepare_fp4(gemm1));
  FEWBIT_TRY(result.gemm2, prepare_fp4(gemm2));
  return result;
}

Result<TrtllmResult> prepare_trtllm_mxint4(const TrtllmMxint4Input& input) {
  FEWBIT_TRY(check_extent("hidden_size", input.hidden_size));
  FEWBIT_TRY(check_extent("intermediate_size", input.intermediate_size));
  FEWBIT_TRY(const std::int64_t experts, experts_of(input.gemm1));
  const std::int64_t width = input.intermediate_size;
  const Part w13{
      .name = "gemm1",
      .matrix = input.gemm1,
      .dims = {.n = 2 * width, .k = input.hidden_size},
      .experts = experts,
      .rows = {.rows = 2 * width, .gating = Gating::gated, .block = TrtllmBlock::rows_32},
      .stored = {.rows = 2 * width, .shift = width}};
  const Part w2{
      .name = "gemm2",
      .matrix = input.gemm2,
      .dims = {.n = input.hidden_size, .k = width},
      .experts = experts,
      .rows = {.rows = input.hidden_size, .gating = Gating::ungated, .block = TrtllmBlock::rows_32},
      .stored = {.rows = input.hidden_size, .shift = 0}};
  TrtllmResult result;
  FEWBIT_TRY(result.gemm1, prepare_mxint4(w13));
  FEWBIT_TRY(result.gemm2, prepare_mxint4(w2));
  return result;
}

}  // namespace fewbit
