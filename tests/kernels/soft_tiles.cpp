// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft_tiles.hpp"

#include <cstring>
#include <utility>

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c")

namespace fewbit::test {
namespace {

#include "kernels/cpu/lane16_avx512_lanes.hpp"
#include "kernels/cpu/lane16_loops.hpp"
#include "kernels/cpu/lane16_tile_fills.hpp"
#include "kernels/cpu/lane16_tile_loops.hpp"
#include "kernels/soft_unit.hpp"

}  // namespace

void soft_dot(int rows, const std::uint16_t* a, const std::uint16_t* b, float* c) {
  SoftUnit unit;
  unit.rows(rows);
  unit.load<0>(c, 64);
  unit.operand<4>(a);
  unit.operand<6>(b);
  unit.dot<0, 4, 6>();
  unit.store<0>(c, 64);
}

Lane16TilesFn* lane16_soft_tiles(Lane16Codes codes) { return tiles_of<SoftUnit>(codes); }

}  // namespace fewbit::test
FEWBIT_ISA_END
