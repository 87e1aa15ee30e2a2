// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_tile_lanes.hpp"

namespace fewbit {

void attention_tile_generic(const AttentionTile& tile) {
  attention_lanes::attention_tile<attention_lanes::Lanes4>(tile);
}

}  // namespace fewbit
