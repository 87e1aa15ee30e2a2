// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_trtllm.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "layout/check_tensor.hpp"
#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
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

// Rows p of the result in their order, each as `out` places it; stored as plain rows of `bits`.
ElementMap map_rows(const Part& part, int bits, std::int64_t columns,
                    std::function<Place(std::int64_t n, std::int64_t k)> out) {
  return {.bits = bits,
          .source = [rows = part.rows, stored = part.stored, columns, bits](
                        std::int64_t p, std::int64_t k) -> Place {
            const std::int64_t bit = (stored.source(rows.source(p)) * columns + k) * bits;
            return {.byte = bit / 8, .bit = static_cast<int>(bit % 8)};
          },
          .out = std::move(out),
          .ranges = {{.first = {}, .count = {.n = part.dims.n, .k = columns}, .block = {}}}};
}

// Rows of scales [n, groups] into the swizzle.
template <int bits>
void swizzle_experts(const Part& part, std::int64_t groups, std::span<std::byte> out,
                     Executor& executor) {
  using Swizzle = Swizzle128x4<bits>;
  const Dims grid{.n = part.dims.n, .k = groups};
  ElementMap map = map_rows(part, bits, groups, place_of<Swizzle>(grid));
  map.ranges.front().block = {.n = 128, .k = 256 / bits};
  move_elements(ElementMover(std::move(map), packing_isa()),
                {.experts = part.experts,
                 .source_bytes = RowMajor<bits>::bytes(grid),
                 .out_bytes = Swizzle::bytes(grid)},
                part.matrix.scales.bytes, out, executor);
}

void move_codes(const Part& part, ElementMap map, std::span<std::byte> out, Executor& executor) {
  const std::int64_t bytes = part.dims.n * part.dims.k / 2;
  move_elements(ElementMover(std::move(map), packing_isa()),
                {.experts = part.experts, .source_bytes = bytes, .out_bytes = bytes},
                part.matrix.codes.bytes, out, executor);
}

Result<TrtllmMatrixResult> prepare_fp4(const Part& part, std::int64_t group, Executor& executor) {
  const DType scale_dtype = group == 16 ? DType::f8_e4m3 : DType::f8_e8m0;
  const std::int64_t groups = part.dims.k / group;
  const Shape shape = {part.experts, part.dims.n, part.dims.k / 2};
  FEWBIT_TRY(check_multiples(part, 128, group));
  FEWBIT_TRY(check_tensor(part.name + " codes", part.matrix.codes, DType::u8, shape));
  FEWBIT_TRY(check_scale_bytes(part.name + " scales", part.matrix.scales, scale_dtype,
                               {part.experts, part.dims.n, groups}));
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(DType::u8, shape));
  const Dims padded = Swizzle128x4<8>::padded({.n = part.dims.n, .k = groups});
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(scale_dtype, {part.experts, padded.n, padded.k}));
  ElementMap map = map_rows(part, 4, part.dims.k, place_of<RowMajor<4>>(part.dims));
  map.ranges.front().block = {.n = 16, .k = 512};
  move_codes(part, std::move(map), codes.bytes, executor);
  swizzle_experts<8>(part, groups, scales.bytes, executor);
  return TrtllmMatrixResult{.codes = codes.tensor, .scales = scales.tensor};
}

// Exchanging the halves of the 16 codes is code - 8 in two's complement.
constexpr std::array<std::uint8_t, 16> signed_codes = [] {
  std::array<std::uint8_t, 16> table{};
  for (std::uint8_t code = 0; code < 16; ++code) table[code] = code ^ 8U;
  return table;
}();

void pack_mxint4(const Part& part, std::span<std::byte> out, Executor& executor) {
  using Blocks = TrtllmBlocks<Gating::ungated>;  // of rows that are in their order already
  ElementMap map = map_rows(
      part, 4, part.dims.k,
      [n = part.dims.n](std::int64_t p, std::int64_t k) { return Blocks::block_place(n, p, k); });
  map.table = signed_codes.data();
  map.ranges.front().block = {.n = 32, .k = Blocks::block_k};
  move_codes(part, std::move(map), out, executor);
}

Result<TrtllmMatrixResult> prepare_mxint4(const Part& part, Executor& executor) {
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
  pack_mxint4(part, codes.bytes, executor);
  swizzle_experts<16>(part, groups, scales.bytes, executor);
  return TrtllmMatrixResult{.codes = codes.tensor, .scales = scales.tensor};
}

Result<std::int64_t> experts_of(const TrtllmMatrix& gemm1) {
  const Shape& shape = gemm1.codes.shape;
  if (shape.size() == 3 && shape[0] > 0) return shape[0];
  return bad("gemm1 codes",
             "shape " + shape_text(shape) + ", expected three extents, experts first");
}

}  // namespace

Result<TrtllmResult> prepare_trtllm_fp4(const TrtllmFp4Input& input, Executor& executor) {
  FEWBIT_TRY(check_extent("hidden_size", input.hidden_size));
  FEWBIT_TRY(check_extent("intermediate_size", input.intermediate_size));
  FEWBIT_TRY(check_extent("epilogue_tile_m", input.epilogue_tile_m));
  if (input.group != 16 && input.group != 32) {
    return bad("group", std::to_string(input.group) + ", expected 16 or 32");
  }
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
  FEWBIT_TRY(result.gemm1, prepare_fp4(gemm1, input.group, executor));
  FEWBIT_TRY(result.gemm2, prepare_fp4(gemm2, input.group, executor));
  return result;
}

Result<TrtllmResult> prepare_trtllm_mxint4(const TrtllmMxint4Input& input, Executor& executor) {
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
  FEWBIT_TRY(result.gemm1, prepare_mxint4(w13, executor));
  FEWBIT_TRY(result.gemm2, prepare_mxint4(w2, executor));
  return result;
}

}  // namespace fewbit
