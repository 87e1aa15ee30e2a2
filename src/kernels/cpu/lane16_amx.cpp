// SPDX-License-Identifier: Apache-2.0
// lane16_tiles with the instructions.
#include <cstring>
#include <utility>

#include "core/isa_region.hpp"
#include "kernels/cpu/lane16_tiles.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c,amx-tile,amx-bf16")

namespace fewbit {
namespace {

#include "kernels/cpu/amx_unit.hpp"
#include "kernels/cpu/lane16_avx512_lanes.hpp"
#include "kernels/cpu/lane16_loops.hpp"
#include "kernels/cpu/lane16_tile_fills.hpp"
#include "kernels/cpu/lane16_tile_loops.hpp"

}  // namespace

Lane16TilesFn* lane16_amx(Lane16Codes codes) { return tiles_of<AmxUnit>(codes); }

}  // namespace fewbit
FEWBIT_ISA_END
#endif
