// SPDX-License-Identifier: Apache-2.0
// The canonical matrices of one expert in the forms that engines' loaders start from: codes in
// GPTQ's, AWQ's or plain words, scales and zero points beside them. Each has one expert.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canonical/grid.hpp"
#include "fewbit/quantized.hpp"
#include "layout/code_rows.hpp"
#include "select/moe_plan.hpp"

namespace fewbit::foreign {

// Matrices of equal n and k, one upon the other: gate and up, or down alone.
struct Stack {
  std::string name;                           // "w13", "w2"
  std::vector<const QuantizedTensor*> parts;  // not empty
  std::vector<const std::vector<float>*> biases;

  std::int64_t rows() const;  // of all parts
  std::int64_t columns() const { return parts.front()->k; }
  const Scheme& scheme() const { return parts.front()->scheme; }
  std::int64_t group() const { return scheme().scale->granularity.cols; }  // 0: a channel
  std::int64_t groups() const { return grid_columns(*parts.front()); }
  // Act-order that matters: not all columns of one group, which kernels don't take as one.
  bool ordered() const {
    return scheme().act_order == ActOrder::group &&
           (groups() > 1 || (group() > 0 && columns() % group() != 0));
  }
  bool has_zeros() const { return !parts.front()->zero_points.empty(); }
  bool biased() const { return !biases.front()->empty(); }
};
enum class FirstPart { gate, up };
Stack w13_stack(const ExpertWeights& expert, FirstPart first = FirstPart::gate);
Stack w2_stack(const ExpertWeights& expert);

// Rows and columns with zeros behind those of each part.
struct Padding {
  std::int64_t rows = 0;  // of a part
  std::int64_t columns = 0;
};

// Integer codes without sign: 8 (or 128) is added to signed ones and to their zero points.
// i32 [1, n, k/8] of 4-bit codes.
Result<OwnedTensor> row_words(const Stack& stack);
// The same into memory of n * k/2 bytes.
Result<void> unsigned_rows(const Stack& stack, std::span<std::byte> out);
// i32 [1, groups, n * bits/32]: zero points.
Result<OwnedTensor> zero_words(const Stack& stack);
// The same a byte each: [n, groups].
Result<std::vector<std::int8_t>> zero_rows(const Stack& stack);
// Its parts, one below the other.
std::vector<CodeRows> code_rows(const Stack& stack);
// Error unsupported: without stored zero points the one of all codes is not the middle.
Result<void> check_middle_zero(const Scheme& scheme, const std::string& where);
Result<void> check_middle_zero(const Stack& stack);

// Scales rounded to f16, bf16 or f32. Error invalid_argument: a finite one that becomes infinite.
Result<OwnedTensor> scales_by_group(const Stack& stack, DType to);  // [1, groups, n]
Result<OwnedTensor> scales_by_row(const Stack& stack, DType to);    // [1, n, groups]
Result<OwnedTensor> bias_of(const Stack& stack, DType to);          // [1, n]
// The same with zeros behind each part, which then has that many values.
Result<OwnedTensor> bias_of(const Stack& stack, DType to, std::int64_t part_rows);
// i32 [1, k]; error invalid_argument: the parts differ.
Result<OwnedTensor> group_index(const Stack& stack);

// Bytes as they are, padded: u8 [1, parts * rows, columns * bits/8] codes of 4 bits, and one-byte
// scales [1, parts * rows, columns / group].
Result<OwnedTensor> code_bytes(const Stack& stack, Padding padded);
Result<OwnedTensor> scale_bytes(const Stack& stack, Padding padded);
// Elements of whole bytes as they are, [1, n, k] of the scheme's type.
Result<OwnedTensor> element_rows(const Stack& stack);
// f32, times the global scale of each part: [1, n] of scales a tensor or a row, [1, n/128, k/128]
// of blocks. Error unsupported: a part whose blocks end within the next part's.
Result<OwnedTensor> fp8_scales(const Stack& stack);

// The expert's share of a planned buffer. Error invalid_argument: it is not planned.
Result<std::span<std::byte>> planned_share(const MoePlan& plan, ExpertSpans to,
                                           std::string_view name);
// Copies into the expert's share of a planned buffer. Error invalid_argument: its size is another.
Result<void> put(const MoePlan& plan, ExpertSpans to, std::string_view name,
                 std::span<const std::byte> bytes);

}  // namespace fewbit::foreign
