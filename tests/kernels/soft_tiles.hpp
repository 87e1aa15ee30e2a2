// SPDX-License-Identifier: Apache-2.0
// lane16_tiles on a unit of tiles in plain C++, which rounds as the manual of AMX says: tests of
// the kernels on CPUs that have AVX-512 and no tiles.
#pragma once

#include "kernels/cpu/lane16_tiles.hpp"

namespace fewbit::test {

// A unit of its own, for tests of what it does. a [rows][32] bf16, b [16][16][2] bf16, c
// [rows][16].
void soft_dot(int rows, const std::uint16_t* a, const std::uint16_t* b, float* c);
Lane16TilesFn* lane16_soft_tiles(Lane16Codes codes);

}  // namespace fewbit::test
