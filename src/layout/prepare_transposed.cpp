// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_transposed.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "core/checked.hpp"
#include "layout/check_tensor.hpp"
#include "layout/column_major.hpp"
#include "layout/element_mover.hpp"
#include "layout/float_scale.hpp"
#include "layout/map_layouts.hpp"
#include "layout/repack_experts.hpp"
#include "layout/row_major.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t fp8_block = 128;

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

std::string name_of(std::size_t part, const char* tensor) {
  return "part " + std::to_string(part) + " " + tensor;
}

std::int64_t rows_of(const F4TransposePart& part) {
  return part.codes.shape.empty() ? 0 : part.codes.shape.front();
}

Result<void> check_globals(const F4TransposeInput& input, std::size_t i) {
  const F4TransposePart& part = input.parts[i];
  const std::string where = name_of(i, "global scales");
  if (part.globals.has_value() != (input.group == 16)) {
    return bad(where, input.group == 16 ? "missing, expected for groups of 16"
                                        : "there, expected none for groups of 32");
  }
  if (!part.globals) return {};
  const bool one = part.globals->shape == Shape{1};
  return check_tensor(where, *part.globals, DType::f32, {one ? 1 : rows_of(part)});
}

Result<void> check_input(const F4TransposeInput& input) {
  FEWBIT_TRY(check_extent("k", input.k));
  FEWBIT_TRY(check_extent("align", input.align));
  if (input.group != 16 && input.group != 32) {
    return bad("group", std::to_string(input.group) + ", expected 16 or 32");
  }
  if (input.k % input.group != 0) {
    return bad("k", std::to_string(input.k) + ", expected a multiple of the group, " +
                        std::to_string(input.group));
  }
  if (input.parts.empty()) return bad("parts", "none, expected at least one matrix");
  const DType scale_dtype = input.group == 16 ? DType::f8_e4m3 : DType::f8_e8m0;
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < input.parts.size(); ++i) {
    const F4TransposePart& part = input.parts[i];
    const std::int64_t n = rows_of(part);
    FEWBIT_TRY(check_extent(name_of(i, "rows"), n));
    FEWBIT_TRY(check_tensor(name_of(i, "codes"), part.codes, DType::u8, {n, input.k / 2}));
    FEWBIT_TRY(check_scale_bytes(name_of(i, "scales"), part.scales, scale_dtype,
                                 {n, input.k / input.group}));
    FEWBIT_TRY(check_globals(input, i));
    columns += n;
    FEWBIT_TRY(check_extent("columns of all parts", columns));
  }
  return {};
}

// Where the result of one part lies.
struct Columns {
  std::int64_t first;
  std::int64_t stride;
};

// Bytes of one or two codes along k stay together.
template <int bits>
void move_part(Dims dims, Columns to, std::span<const std::byte> in, std::span<std::byte> out,
               Executor& executor) {
  constexpr std::int64_t per_byte = 8 / bits;
  const ElementMap map{
      .bits = bits,
      .source = place_of<RowMajor<bits>>(dims),
      .out =
          [to](std::int64_t n, std::int64_t k) {
            return Place{.byte = k / per_byte * to.stride + to.first + n,
                         .bit = static_cast<int>(k % per_byte) * bits};
          },
      .ranges = {{.first = {}, .count = dims, .block = {.n = 64, .k = 512 / bits}}}};
  move_elements(ElementMover(map, packing_isa()), {}, in, out, executor);
}

float global_of(const F4TransposePart& part, std::int64_t n) {
  float value = 0.0F;
  const std::int64_t at = part.globals->shape.front() == 1 ? 0 : n;
  std::memcpy(&value, part.globals->bytes.data() + at * std::int64_t{sizeof value}, sizeof value);
  return value;
}

// One for all columns where that says the same bits.
Result<Tensor> join_globals(const F4TransposeInput& input, std::int64_t stride) {
  std::vector<float> all;
  for (const F4TransposePart& part : input.parts) {
    for (std::int64_t n = 0; n < rows_of(part); ++n) all.push_back(global_of(part, n));
  }
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  const bool same =
      std::ranges::all_of(all, [&](float value) { return bits(value) == bits(all.front()); });
  if (same) all.resize(1);
  FEWBIT_TRY(OwnedTensor globals, allocate_tensor(DType::f32, {same ? 1 : stride}));
  std::memcpy(globals.bytes.data(), all.data(), all.size() * sizeof(float));
  return globals.tensor;
}

}  // namespace

Result<F4TransposeResult> transpose_f4(const F4TransposeInput& input, Executor& executor) {
  FEWBIT_TRY(check_input(input));
  F4TransposeResult result;
  std::int64_t columns = 0;
  for (const F4TransposePart& part : input.parts) {
    result.first_of.push_back(columns);
    columns += rows_of(part);
  }
  const std::int64_t stride = round_up(columns, input.align);
  const std::int64_t groups = input.k / input.group;
  const DType scale_dtype = input.group == 16 ? DType::f8_e4m3 : DType::f8_e8m0;
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(DType::u8, {input.k / 2, stride}));
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(scale_dtype, {groups, stride}));
  for (std::size_t i = 0; i < input.parts.size(); ++i) {
    const F4TransposePart& part = input.parts[i];
    const Columns to{.first = result.first_of[i], .stride = stride};
    move_part<4>({.n = rows_of(part), .k = input.k}, to, part.codes.bytes, codes.bytes, executor);
    move_part<8>({.n = rows_of(part), .k = groups}, to, part.scales.bytes, scales.bytes, executor);
  }
  result.codes = codes.tensor;
  result.scales = scales.tensor;
  if (input.group == 16) {
    FEWBIT_TRY(result.globals, join_globals(input, stride));
  }
  return result;
}

Result<Fp8TransposeResult> transpose_fp8(const TensorView& codes, const TensorView& scales,
                                         Dims dims, Executor& executor) {
  FEWBIT_TRY(check_extent("n", dims.n));
  FEWBIT_TRY(check_extent("k", dims.k));
  const Dims grid{.n = ceil_div(dims.n, fp8_block), .k = ceil_div(dims.k, fp8_block)};
  FEWBIT_TRY(check_tensor("codes", codes, DType::f8_e4m3, {dims.n, dims.k}));
  if (scales.dtype != DType::f32 && scales.dtype != DType::bf16) {
    return bad("scales",
               "dtype " + std::string(dtype_name(scales.dtype)) + ", expected f32 or bf16");
  }
  FEWBIT_TRY(check_tensor("scales", scales, scales.dtype, {grid.n, grid.k}));
  FEWBIT_TRY(OwnedTensor codes_out, allocate_tensor(DType::f8_e4m3, {dims.k, dims.n}));
  FEWBIT_TRY(OwnedTensor scales_out, allocate_tensor(DType::f32, {grid.k, grid.n}));
  repack_experts<RowMajor<8>, ColumnMajor<8>>(1, dims, codes.bytes, codes_out.bytes, executor);
  for (std::int64_t n = 0; n < grid.n; ++n) {
    for (std::int64_t k = 0; k < grid.k; ++k) {
      const float scale = load_scale(scales, n * grid.k + k);
      std::memcpy(scales_out.bytes.data() + ColumnMajor<32>::place(grid, n, k).byte, &scale,
                  sizeof scale);
    }
  }
  return Fp8TransposeResult{.codes = codes_out.tensor, .scales = scales_out.tensor};
}

}  // namespace fewbit
