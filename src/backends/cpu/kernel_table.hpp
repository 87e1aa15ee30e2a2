// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction-set level, chosen once at preparation.
#pragma once

#include "fewbit/selection.hpp"
#include "kernels/cpu/lane16.hpp"
#include "kernels/cpu/lane16_tiles.hpp"
#include "kernels/cpu/panel.hpp"
#include "kernels/cpu/plain_rows.hpp"

namespace fewbit::cpu {

struct Kernels {
  IsaLevel level;
  const char* backend;
  Lane16KernelOf* lane16;
  PlainRowsFn* bf16_rows;
  PlainRowsFn* f16_rows;
  PlainRowsFn* f32_rows;
  // Not null: products of packed weights run on tiles, with bf16 activations.
  Lane16TilesOf* tiles = nullptr;
  // Tokens a weight from which tiles pay: fewer leave most of a tile empty, and weights are decoded
  // into it all the same. On a Xeon whose tiles others used too, int4 took 2.9 ms by tiles and 1.3
  // by vectors for one token (docs/performance.md).
  std::int64_t least_tile_tokens = 4;
};

// level: one that this binary is built for; others get the generic kernels.
const Kernels& kernels_of(IsaLevel level);
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
