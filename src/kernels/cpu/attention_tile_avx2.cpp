// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "kernels/cpu/attention_tile_lanes.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx2,fma")

namespace fewbit {

void attention_tile_avx2(const AttentionTile& tile) {
  attention_lanes::attention_tile<attention_lanes::Lanes8>(tile);
}

}  // namespace fewbit

FEWBIT_ISA_END
#endif
