// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "kernels/cpu/attention_tile_lanes.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512dq,avx512vl")

namespace fewbit {

void attention_tile_avx512(const AttentionTile& tile) {
  attention_lanes::attention_tile<attention_lanes::Lanes16>(tile);
}

}  // namespace fewbit

FEWBIT_ISA_END
#endif
