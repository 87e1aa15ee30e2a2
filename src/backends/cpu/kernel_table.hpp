// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction-set level, chosen once at preparation.
#pragma once

#include <algorithm>

#include "fewbit/selection.hpp"
#include "kernels/cpu/lane16.hpp"
#include "kernels/cpu/lane16_tiles.hpp"
#include "kernels/cpu/panel.hpp"
#include "kernels/cpu/plain_rows.hpp"

namespace fewbit::cpu {

// What a block of 16 rows by tiles costs, in tokens: max(least, more + tokens).
struct BlockCost {
  std::int64_t least = 0;
  std::int64_t more = 32;  // making tiles of a block

  constexpr std::int64_t of(std::int64_t tokens) const { return std::max(least, more + tokens); }
};

struct Kernels {
  IsaLevel level;
  const char* backend;
  Lane16KernelOf* lane16;
  int lane16_tokens;  // most tokens of a panel of those
  PlainRowsFn* bf16_rows;
  PlainRowsFn* f16_rows;
  PlainRowsFn* f32_rows;
  // Not null: products of packed weights with bf16 activations run on tiles, or on dot products
  // that take their operands as tiles do, where there is such a kernel for the codes.
  Lane16TilesOf* tiles = nullptr;
  const char* tile_products = "tiles of 16 tokens";  // as explain calls them
  BlockCost tile_cost = {};
  // Tokens a weight from which tiles pay: fewer leave most of a tile empty, and weights are decoded
  // into it all the same. On a Xeon whose tiles others used too, int4 took 2.9 ms by tiles and 1.3
  // by vectors for one token (Qwen3-30B-A3B).
  std::int64_t least_tile_tokens = 4;
};

// level: one that this binary is built for; others get the generic kernels.
const Kernels& kernels_of(IsaLevel level);
// The best ones of a level on a CPU with these features.
const Kernels& kernels_of(IsaLevel level, const CpuFeatures& features);
// The best ones of a level here.
const Kernels& kernels_here(IsaLevel level);
// dtype: bf16, f16 or f32, as the support rules guarantee.
PlainRowsFn* plain_rows(const Kernels& kernels, DType dtype);

// Conversions between an activation type and panels, the same at every level.
struct PanelConversions {
  PanelLoadFn* load;
  PanelLoadOrderedFn* load_ordered;
  PanelStoreFn* store;
  RoundFn* round;
  std::int64_t element_bytes;
};
const PanelConversions& conversions_of(DType dtype);

}  // namespace fewbit::cpu
