// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_marlin_float.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/checked.hpp"
#include "core/float_convert.hpp"
#include "core/float_types.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/byte_survey.hpp"
#include "layout/check_tensor.hpp"
#include "layout/float_scale.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_act8_4bit.hpp"
#include "layout/marlin_e8m0.hpp"
#include "layout/marlin_scales.hpp"
#include "layout/pack_b12x.hpp"
#include "layout/repack_experts.hpp"
#include "layout/row_major.hpp"
#include "layout/scale_grid.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t mx_group = 32;
constexpr std::int64_t fp8_block = 128;

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

Result<std::int64_t> check_codes(const TensorView& codes, DType dtype, Dims dims,
                                 std::int64_t k_multiple, std::int64_t k_bytes) {
  FEWBIT_TRY(check_extent("n", dims.n));
  FEWBIT_TRY(check_extent("k", dims.k));
  if (dims.n % 64 != 0 || dims.k % k_multiple != 0) {
    return bad("codes", "n x k is " + std::to_string(dims.n) + " x " + std::to_string(dims.k) +
                            ", expected multiples of 64 and " + std::to_string(k_multiple));
  }
  if (codes.shape.size() != 3 || codes.shape[0] <= 0) {
    return bad("codes",
               "shape " + shape_text(codes.shape) + ", expected three extents, experts first");
  }
  const std::int64_t experts = codes.shape[0];
  FEWBIT_TRY(check_tensor("codes", codes, dtype, {experts, dims.n, k_bytes}));
  return experts;
}

Result<Tensor> pack_bias(const TensorView& bias, Dims dims, Executor& executor) {
  const std::int64_t experts = bias.shape.front();
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(bias.dtype, {experts, dims.n}));
  repack_experts<RowMajor<16>, MarlinScales<ScaleOrder::single>>(experts, {.n = dims.n, .k = 1},
                                                                 bias.bytes, out.bytes, executor);
  return out.tensor;
}

// What becomes of each byte of scales for FP8 activations.
std::array<std::uint8_t, 256> lifted_e8m0() {
  std::array<std::uint8_t, 256> table{};
  for (unsigned byte = 0; byte < table.size(); ++byte) {
    table[byte] = static_cast<std::uint8_t>(byte + 6);
  }
  return table;
}

Result<void> refuse_large(const TensorView& scales, MarlinRules rules) {
  const int largest = rules == MarlinRules::exact ? marlin_e8m0_largest : marlin_e8m0_largest + 1;
  const std::int64_t beyond =
      count_between(scales.bytes, {.first = static_cast<std::uint8_t>(largest + 1), .last = 255});
  if (beyond == 0) return {};
  return bad("scales", std::to_string(beyond) + " above 2^" + std::to_string(largest - 127) +
                           ", the largest that FP8 kernels can hold");
}

void move_mx_scales(const MarlinMxfp4Matrix& matrix, Dims grid, MarlinActivation activation,
                    std::span<std::byte> out, Executor& executor) {
  const std::int64_t experts = matrix.codes.shape.front();
  constexpr Dims block{.n = 64, .k = 64};
  const auto& in = matrix.scales.bytes;
  if (activation == MarlinActivation::f8_e4m3) {
    const std::array<std::uint8_t, 256> table = lifted_e8m0();
    repack_experts<RowMajor<8>, MarlinScales<ScaleOrder::single, 8>>(experts, grid, in, out,
                                                                     executor, block, table.data());
  } else if (scale_order(grid.k * mx_group, mx_group) == ScaleOrder::grouped) {
    repack_experts<RowMajor<8>, GroupedByteScales>(experts, grid, in, out, executor, block);
  } else {
    repack_experts<RowMajor<8>, SingleByteScales>(experts, grid, in, out, executor, block);
  }
}

// Rounded to the type first, as engines convert scales at load.
std::uint16_t lift(DType dtype, float scale) {
  const float rounded =
      dtype == DType::bf16 ? bf16_to_f32(f32_to_bf16(scale)) : f16_to_f32(f32_to_f16(scale));
  const float lifted = rounded * marlin_e4m3_lift(dtype);
  return dtype == DType::bf16 ? f32_to_bf16(lifted) : f32_to_f16(lifted);
}

bool is_finite(DType dtype, std::uint16_t bits) {
  return std::isfinite(dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits));
}

enum class Fp8Scales { tensor, channel, blocks };

Result<Fp8Scales> check_fp8_scales(const TensorView& scales, std::int64_t experts, Dims dims) {
  const DType dtype = scales.dtype;
  if (!is_16_or_32_bit_float(dtype)) {
    return bad("scales", "dtype " + std::string(dtype_name(dtype)) + ", expected f32, bf16 or f16");
  }
  switch (scales.shape.size()) {
    case 1:
      FEWBIT_TRY(check_tensor("scales", scales, dtype, {experts}));
      return Fp8Scales::tensor;
    case 2:
      FEWBIT_TRY(check_tensor("scales", scales, dtype, {experts, dims.n}));
      return Fp8Scales::channel;
    default:
      break;
  }
  if (dims.k % fp8_block != 0) {
    return bad("scales", "of blocks, with k " + std::to_string(dims.k) +
                             ", expected a multiple of " + std::to_string(fp8_block));
  }
  FEWBIT_TRY(check_tensor("scales", scales, dtype,
                          {experts, ceil_div(dims.n, fp8_block), dims.k / fp8_block}));
  return Fp8Scales::blocks;
}

// [experts, n, groups] in the activations' type.
Result<std::vector<std::uint16_t>> lifted_scales(const MarlinFp8Matrix& matrix, Dims grid,
                                                 DType dtype, Fp8Scales kind) {
  const std::int64_t experts = matrix.codes.shape.front();
  const std::int64_t block_rows = ceil_div(grid.n, fp8_block);
  std::vector<std::uint16_t> all;
  all.reserve(static_cast<std::size_t>(experts * grid.n * grid.k));
  for (std::int64_t e = 0; e < experts; ++e) {
    for (std::int64_t n = 0; n < grid.n; ++n) {
      for (std::int64_t k = 0; k < grid.k; ++k) {
        std::int64_t index = e;
        if (kind == Fp8Scales::channel) index = e * grid.n + n;
        if (kind == Fp8Scales::blocks) index = (e * block_rows + n / fp8_block) * grid.k + k;
        const float scale = load_scale(matrix.scales, index);
        all.push_back(lift(dtype, scale));
        if (!std::isfinite(scale) || is_finite(dtype, all.back())) continue;
        return bad("scales", "expert " + std::to_string(e) + " row " + std::to_string(n) + " has " +
                                 std::to_string(scale) + ", which is beyond " +
                                 std::string(dtype_name(dtype)) + " times " +
                                 std::to_string(marlin_e4m3_lift(dtype)));
      }
    }
  }
  return all;
}

}  // namespace

Result<MarlinFloatResult> prepare_marlin_mxfp4(const MarlinMxfp4Matrix& matrix, Dims dims,
                                               MarlinActivation activation, MarlinRules rules,
                                               Executor& executor) {
  if (activation == MarlinActivation::int8) {
    return Error{ErrorCode::unsupported, "MXFP4 with int8 activations, expected 16 bits or FP8",
                 ""};
  }
  FEWBIT_TRY(const std::int64_t experts,
             check_codes(matrix.codes, DType::u8, dims, mx_group, dims.k / 2));
  const Dims grid{.n = dims.n, .k = dims.k / mx_group};
  FEWBIT_TRY(check_scale_bytes("scales", matrix.scales, DType::f8_e8m0, {experts, grid.n, grid.k}));
  if (activation == MarlinActivation::f8_e4m3) {
    FEWBIT_TRY(refuse_large(matrix.scales, rules));
  }
  MarlinFloatResult result;
  if (matrix.bias) {
    const DType dtype = matrix.bias->dtype == DType::f16 ? DType::f16 : DType::bf16;
    FEWBIT_TRY(check_tensor("bias", *matrix.bias, dtype, {experts, dims.n}));
    FEWBIT_TRY(result.bias, pack_bias(*matrix.bias, dims, executor));
  }
  FEWBIT_TRY(OwnedTensor words, allocate_tensor(DType::i32, {experts, dims.k / 16, dims.n * 2}));
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(DType::f8_e8m0, {experts, grid.k, grid.n}));
  if (activation == MarlinActivation::f8_e4m3) {
    repack_experts<RowMajor<4>, MarlinAct8Of4Bit>(experts, dims, matrix.codes.bytes, words.bytes,
                                                  executor);
  } else {
    pack_b12x({.experts = experts,
               .dims = dims,
               .rows = {.rows = dims.n, .shift = 0},
               .isa = packing_isa()},
              matrix.codes.bytes, words.bytes, executor);
  }
  move_mx_scales(matrix, grid, activation, scales.bytes, executor);
  result.words = words.tensor;
  result.scales = scales.tensor;
  return result;
}

Result<MarlinFloatResult> prepare_marlin_fp8(const MarlinFp8Matrix& matrix, Dims dims,
                                             DType activation_dtype, Executor& executor) {
  if (activation_dtype != DType::bf16 && activation_dtype != DType::f16) {
    return bad("activation dtype",
               std::string(dtype_name(activation_dtype)) + ", expected bf16 or f16");
  }
  FEWBIT_TRY(const std::int64_t experts,
             check_codes(matrix.codes, DType::f8_e4m3, dims, 16, dims.k));
  FEWBIT_TRY(const Fp8Scales kind, check_fp8_scales(matrix.scales, experts, dims));
  const Dims grid{.n = dims.n, .k = kind == Fp8Scales::blocks ? dims.k / fp8_block : 1};
  MarlinFloatResult result;
  if (matrix.bias) {
    FEWBIT_TRY(check_tensor("bias", *matrix.bias, activation_dtype, {experts, dims.n}));
    FEWBIT_TRY(result.bias, pack_bias(*matrix.bias, dims, executor));
  }
  FEWBIT_TRY(const std::vector<std::uint16_t> lifted,
             lifted_scales(matrix, grid, activation_dtype, kind));
  FEWBIT_TRY(OwnedTensor words, allocate_tensor(DType::i32, {experts, dims.k / 16, dims.n * 4}));
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(activation_dtype, {experts, grid.k, grid.n}));
  repack_experts<RowMajor<8>, Marlin8Bit>(experts, dims, matrix.codes.bytes, words.bytes, executor);
  const auto lifted_bytes = std::as_bytes(std::span(lifted));
  const std::int64_t group = kind == Fp8Scales::blocks ? fp8_block : -1;
  if (scale_order(dims.k, group) == ScaleOrder::grouped) {
    repack_experts<RowMajor<16>, MarlinScales<ScaleOrder::grouped>>(experts, grid, lifted_bytes,
                                                                    scales.bytes, executor);
  } else {
    repack_experts<RowMajor<16>, MarlinScales<ScaleOrder::single>>(experts, grid, lifted_bytes,
                                                                   scales.bytes, executor);
  }
  result.words = words.tensor;
  result.scales = scales.tensor;
  return result;
}

}  // namespace fewbit
