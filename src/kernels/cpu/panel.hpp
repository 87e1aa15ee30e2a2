// SPDX-License-Identifier: Apache-2.0
// Panels: how the CPU kernels take and give activations.
//
// A panel of T tokens and n features is f32 [ceil(n/16)][T][16]: feature i of token t stands at
// (i/16 * T + t) * 16 + i % 16, zeros past n. Kernels of 16 rows then read and write it in order,
// whatever T, and the result of one product is the operand of the next.
#pragma once

#include <cstdint>

namespace fewbit {

inline constexpr int max_panel_tokens = 24;
// Of the kernels that decode weights once for all tokens of a panel (kernel_table.hpp says which).
inline constexpr int max_decoded_tokens = 96;

// One token of n values, of any alignment, into its place of a panel (panel points at element
// (0, t)); returns the largest |x|, NaN left out.
using PanelLoadFn = float(const std::uint8_t* row, std::int64_t n, int tokens, float* panel);
PanelLoadFn panel_load_bf16, panel_load_f16, panel_load_f32;

// The same with value order[i] of the row at feature i; n is a multiple of 16.
using PanelLoadOrderedFn = float(const std::uint8_t* row, const std::int32_t* order, std::int64_t n,
                                 int tokens, float* panel);
PanelLoadOrderedFn panel_load_ordered_bf16, panel_load_ordered_f16, panel_load_ordered_f32;

// The inverse, rounded to the type (nearest, ties to even).
using PanelStoreFn = void(const float* panel, std::int64_t n, int tokens, std::uint8_t* row);
PanelStoreFn panel_store_bf16, panel_store_f16, panel_store_f32;

// Rounds each of `count` values to the type; count is a multiple of 16.
using RoundFn = void(float* values, std::int64_t count);
RoundFn round_bf16, round_f16, round_f32;

}  // namespace fewbit
