// SPDX-License-Identifier: Apache-2.0
// lane16_tiles by dot products of bf16 pairs.
#include <bit>
#include <type_traits>
#include <utility>

#include "core/isa_region.hpp"
#include "kernels/cpu/lane16_tiles.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c")

namespace fewbit {
namespace {

#include "kernels/cpu/lane16_avx512_lanes.hpp"
#include "kernels/cpu/lane16_loops.hpp"
#include "kernels/cpu/lane16_tile_fills.hpp"
#include "kernels/cpu/lane16_tile_pairs.hpp"

}  // namespace

Lane16TilesFn* lane16_dots_avx512(Lane16Codes codes) { return dots_of(codes); }

}  // namespace fewbit
FEWBIT_ISA_END
#endif
