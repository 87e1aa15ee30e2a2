// SPDX-License-Identifier: Apache-2.0
// The scratch memory of one pass over a MoE layer: sizes from the problem, pieces by offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cpu/kernel_table.hpp"
#include "backends/cpu/panels.hpp"
#include "fewbit/result.hpp"
#include "fewbit/selection.hpp"

namespace fewbit::cpu {

// One panel of an expert: routes [first, first + tokens) of the sorted list.
struct Panel {
  std::int32_t first = 0;
  std::int32_t tokens = 0;
};

// All of it, for up to `tokens` tokens. R = tokens * top_k routes, E experts.
struct MoeWorkspace {
  std::span<std::int32_t> counts;       // [E] routes of an expert
  std::span<std::int32_t> offsets;      // [E + 1] where they begin in the sorted list
  std::span<std::int32_t> routes;       // [R] sorted list: route at a position
  std::span<std::int32_t> positions;    // [R] its inverse; -1: dropped
  std::span<std::int32_t> panel_begin;  // [E + 1] first panel of an expert
  std::span<std::int32_t> panel_of;     // [R] panel of a position
  std::span<Panel> panels;              // [E + R / max_panel_tokens]
  std::span<float> hidden_amax;         // [R] by position
  // With panels:
  std::span<float> hidden;     // [R, hidden_size padded to 16] panels; later the routes' outputs
  std::span<float> activated;  // [R, intermediate_size padded to 16] panels
  // With tiles, kernels/cpu/tile_operand.hpp:
  std::span<std::uint16_t> hidden_tiles;     // [R, tile_row(hidden_size)] and tile_slack
  std::span<std::uint16_t> activated_tiles;  // [R, tile_row(intermediate_size)] and tile_slack
  std::span<float> outputs;                  // [R, output_row(hidden_size)] of the routes
};

// What products take activations as.
enum class Operand : std::uint8_t { panels, tiles };

// Tokens of an expert when routing is even, rounded up.
std::int64_t even_tokens(const MoeProblem& problem, std::int64_t tokens);

// The operand of all products of a layer: for runs and for what explain says of them.
struct OperandChoice {
  Operand many = Operand::panels;      // of least_tile_tokens or more an expert
  std::int64_t least_tile_tokens = 0;  // an expert at even routing; fewer take panels
  std::int64_t panel_tokens = max_panel_tokens;

  PanelCut panel_cut() const { return {.most = panel_tokens}; }

  Operand of(const MoeProblem& problem, std::int64_t tokens) const {
    return even_tokens(problem, tokens) < least_tile_tokens ? Operand::panels : many;
  }
};
// Tiles where gate, up and down have kernels for them, and with bf16 activations.
OperandChoice operand_choice(const Kernels& kernels, const MoeProblem& problem);

// A line beside the features, so that rows of 2^n features don't meet in few sets of a cache.
constexpr std::int64_t output_row(std::int64_t hidden_size) { return hidden_size + 16; }

// Error limit when the sizes overflow.
Result<std::uint64_t> moe_workspace_bytes(const MoeProblem& problem, Operand operand,
                                          std::int64_t tokens);
// Precondition: memory holds moe_workspace_bytes(…), aligned to 64.
MoeWorkspace moe_workspace(const MoeProblem& problem, Operand operand, std::int64_t tokens,
                           std::span<std::byte> memory);

}  // namespace fewbit::cpu
